/* tunesmith 1
entry = "silu_and_mul"
grid  = ["ceil_div(d, 256)", "T"]
block = ["256"]
args  = ["x", "out", "T"]
[require]
"a row of the grid for each row" = "T <= 65535"
*/
// One thread per element, scalar accesses. Bound: 6 bytes per element at 2 bytes a number; here a warp asks for 64 bytes
// at a time, half of what one request can carry, and two requests are all a thread keeps in flight.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using io_t = __nv_bfloat16;  // type: io
#define DIM_D 14336          // dim: d

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ void put(float* p, float v) { *p = v; }
__device__ __forceinline__ void put(__half* p, float v) { *p = __float2half(v); }
__device__ __forceinline__ void put(__nv_bfloat16* p, float v) { *p = __float2bfloat16(v); }

extern "C" __global__ void silu_and_mul(const io_t* x, io_t* out, int T) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  const size_t t = blockIdx.y;
  if (j >= DIM_D || t >= T) return;
  const float gate = to_float(x[t * 2 * DIM_D + j]);
  const float up = to_float(x[t * 2 * DIM_D + DIM_D + j]);
  put(out + t * DIM_D + j, gate / (1.0f + expf(-gate)) * up);
}
