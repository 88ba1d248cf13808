/* tunesmith 1
entry = "row_softmax"
grid  = ["T"]
block = ["256"]
args  = ["x", "y", "T"]
*/
// One block per row, scalar accesses, three passes over the row: largest, sum, scale.
// Bound: 4 bytes per element at 2 bytes a number; this asks for 8, the second and third read from cache at best.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using io_t = __nv_bfloat16;  // type: io
#define DIM_V 4096           // dim: V

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ void put(float* p, float v) { *p = v; }
__device__ __forceinline__ void put(__half* p, float v) { *p = __float2half(v); }
__device__ __forceinline__ void put(__nv_bfloat16* p, float v) { *p = __float2bfloat16(v); }

extern "C" __global__ void row_softmax(const io_t* x, io_t* y, int T) {
  __shared__ float part[256];
  x += (size_t)blockIdx.x * DIM_V;
  y += (size_t)blockIdx.x * DIM_V;
  const int tid = threadIdx.x;
  float largest = __int_as_float(0xff800000);  // minus infinity
  for (int j = tid; j < DIM_V; j += 256) largest = fmaxf(largest, to_float(x[j]));
  part[tid] = largest;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (tid < half) part[tid] = fmaxf(part[tid], part[tid + half]);
    __syncthreads();
  }
  largest = part[0];
  __syncthreads();
  float sum = 0.0f;
  for (int j = tid; j < DIM_V; j += 256) sum += expf(to_float(x[j]) - largest);
  part[tid] = sum;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (tid < half) part[tid] += part[tid + half];
    __syncthreads();
  }
  sum = part[0];
  for (int j = tid; j < DIM_V; j += 256) put(y + j, expf(to_float(x[j]) - largest) / sum);
}
