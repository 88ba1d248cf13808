/* tunesmith 1
[workspace]
partial = "f32[64]"
[[launch]]
entry = "sum"
grid  = ["64"]
block = ["64"]
args  = ["x", "partial", "N"]
[[launch]]
entry = "sum"
grid  = ["1"]
block = ["64"]
args  = ["partial", "out", "64"]
*/
// A tree in local memory per group, then the same over the groups' sums. Bound: 4 bytes per element; every addition of a
// work-item waits 4 cycles for the one before, 1 ns per element and core if the compiler joins no work-items.
__kernel void sum(__global const float* x, __global float* out, int n) {
  __local float part[64];
  const int me = get_local_id(0);
  float s = 0.0f;
  for (int i = get_global_id(0); i < n; i += get_global_size(0)) s += x[i];
  part[me] = s;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = 32; step > 0; step /= 2) {
    if (me < step) part[me] += part[me + step];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (me == 0) out[get_group_id(0)] = part[0];
}
