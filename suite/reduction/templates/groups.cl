/* tunesmith 1
[workspace]
partial = "f32[GROUPS]"
[require]
"no chain of additions is longer than 2048" = "max(N / GROUPS, ALONE) <= 2048*LOCAL*VEC*CHAINS"
[[launch]]
entry = "sum"
grid  = ["GROUPS"]
block = ["LOCAL"]
args  = ["x", "partial", "N"]
when  = "N > ALONE"
[[launch]]
entry = "sum"
grid  = ["1"]
block = ["LOCAL"]
args  = ["partial", "out", "GROUPS"]
when  = "N > ALONE"
[[launch]]
entry = "sum"
grid  = ["1"]
block = ["LOCAL"]
args  = ["x", "out", "N"]
when  = "N <= ALONE"
[[start]]
LOCAL  = 1
VEC    = 16
CHAINS = 4
GROUPS = 64
[[start]]
LOCAL  = 1
VEC    = 16
CHAINS = 8
GROUPS = 64
SPAN   = 1
ALONE  = 16384
[[start]]
LOCAL  = 256
GROUPS = 256
*/
// Bound: 4 bytes per element; an addition waits 4 cycles for the one before, so it takes several chains of wide vectors
// to keep up with memory.
#define LOCAL 16   // tune: 1, 4, 16, 64, 256; work-items per group
#define VEC 4      // tune: 2, 4, 8, 16; elements per access
#define CHAINS 1   // tune: 1, 2, 4, 8; accesses, and chains of additions, in flight per work-item
#define GROUPS 64  // tune: 2, 4, 8, 16, 64, 256, 1024; groups of the first launch
#define SPAN 0     // tune: 0, 1; 0 all groups walk abreast, 1 each has a stretch of its own
#define ALONE 0    // tune: 0, 4096, 16384, 65536; up to so many elements one group does it alone

#define PASTE(a, b) a##b
#define NAME(a, b) PASTE(a, b)
typedef NAME(float, VEC) f_v;
#define LOAD NAME(vload, VEC)

__kernel void sum(__global const float* x, __global float* out, int n) {
  const size_t vectors = n / VEC, group = get_group_id(0), groups = get_num_groups(0), me = get_local_id(0);
#if SPAN
  const size_t step = LOCAL, end = vectors * (group + 1) / groups;
  size_t i = vectors * group / groups + me;
#else
  const size_t step = LOCAL * groups, end = vectors;
  size_t i = group * LOCAL + me;
#endif
  f_v chain[CHAINS];
#pragma unroll
  for (int u = 0; u < CHAINS; ++u) chain[u] = 0.0f;
  for (; i + (CHAINS - 1) * step < end; i += CHAINS * step) {
#pragma unroll
    for (int u = 0; u < CHAINS; ++u) chain[u] += LOAD(i + u * step, x);
  }
  for (; i < end; i += step) chain[0] += LOAD(i, x);
#pragma unroll
  for (int u = 1; u < CHAINS; ++u) chain[0] += chain[u];
  float lanes[VEC], s = 0.0f;
  NAME(vstore, VEC)(chain[0], 0, lanes);
#pragma unroll
  for (int e = 0; e < VEC; ++e) s += lanes[e];
  if (group == 0 && me == 0)  // fewer than VEC elements are left
    for (int j = vectors * VEC; j < n; ++j) s += x[j];
#if LOCAL > 1
  __local float part[LOCAL];
  part[me] = s;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_way = LOCAL / 2; half_way > 0; half_way /= 2) {
    if (me < half_way) part[me] += part[me + half_way];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  s = part[0];
#endif
  if (me == 0) out[group] = s;
}
