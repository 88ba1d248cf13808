/* tunesmith 1
entry = "routed_activation"
grid  = ["rows"]
block = ["256"]
args  = ["counts", "offsets", "x", "out"]
*/
// One block per row, which looks for its expert one by one; one element per thread and access.
// Bound: 3*d*sizeof(io) bytes per row in use; the search is up to E loads from cache that wait for each other.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define EXPERTS 128  // dim: E
#define DIM_D 768    // dim: d
using io_t = __nv_bfloat16;  // type: io

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(__half x) { return __half2float(x); }
__device__ __forceinline__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float x, float& to) { to = x; }
__device__ __forceinline__ void narrow(float x, __half& to) { to = __float2half_rn(x); }
__device__ __forceinline__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

extern "C" __global__ void routed_activation(const int* counts, const int* offsets, const io_t* x, io_t* out) {
  const int row = blockIdx.x;
  int e = 0;
  while (e < EXPERTS && row >= offsets[e + 1]) ++e;
  if (e == EXPERTS || row - offsets[e] >= counts[e]) return;  // padding
  for (int i = threadIdx.x; i < DIM_D; i += 256) {
    const float gate = wide(x[(size_t)row * 2 * DIM_D + i]), up = wide(x[(size_t)row * 2 * DIM_D + DIM_D + i]);
    narrow(gate / (1.0f + expf(-gate)) * up, out[(size_t)row * DIM_D + i]);
  }
}
