/* tunesmith 1
entry = "fused_add_rmsnorm"
grid  = ["T"]
block = ["64"]
args  = ["x", "residual", "w", "eps"]
*/
// One group per row, scalar accesses, the sum read back for the second pass. Bound: 16 bytes per element in f32; each
// work-item's serial sum waits 4 cycles for every addition, 1 ns per element and core if the compiler joins none.
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
typedef float io_t;  // type: io
#define DIM_D 8192   // dim: d

__kernel void fused_add_rmsnorm(__global io_t* x, __global io_t* residual, __global const io_t* weight, float eps) {
  __local float part[64];
  const int me = get_local_id(0);
  x += (size_t)get_group_id(0) * DIM_D;
  residual += (size_t)get_group_id(0) * DIM_D;
  float sum = 0.0f;
  for (int j = me; j < DIM_D; j += 64) {
    const float r = (float)x[j] + (float)residual[j];
    residual[j] = (io_t)r;
    sum += r * r;
  }
  part[me] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = 32; step > 0; step /= 2) {
    if (me < step) part[me] += part[me + step];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float scale = 1.0f / sqrt(part[0] / DIM_D + eps);
  for (int j = me; j < DIM_D; j += 64) x[j] = (io_t)((float)residual[j] * scale * (float)weight[j]);
}
