/* tunesmith 1
entry = "fused_add_rmsnorm"
grid  = ["T"]
block = ["256"]
args  = ["x", "residual", "w", "eps"]
*/
// One block per row, scalar accesses, the sum read back from memory for the second pass.
// Bound: 8 bytes per element at 2 bytes a number; the second pass reads 2 more, from cache if the row is still there.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using io_t = __nv_bfloat16;  // type: io
#define DIM_D 8192           // dim: d

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ void put(float* p, float v) { *p = v; }
__device__ __forceinline__ void put(__half* p, float v) { *p = __float2half(v); }
__device__ __forceinline__ void put(__nv_bfloat16* p, float v) { *p = __float2bfloat16(v); }

extern "C" __global__ void fused_add_rmsnorm(io_t* x, io_t* residual, const io_t* weight, float eps) {
  __shared__ float part[256];
  x += (size_t)blockIdx.x * DIM_D;
  residual += (size_t)blockIdx.x * DIM_D;
  float sum = 0.0f;
  for (int j = threadIdx.x; j < DIM_D; j += 256) {
    const float r = to_float(x[j]) + to_float(residual[j]);
    put(residual + j, r);
    sum += r * r;
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  const float scale = rsqrtf(part[0] / DIM_D + eps);
  for (int j = threadIdx.x; j < DIM_D; j += 256) put(x + j, to_float(residual[j]) * scale * to_float(weight[j]));
}
