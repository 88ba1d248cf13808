/* tunesmith 1
entry = "silu_and_mul"
grid  = ["T"]
block = ["1024"]
args  = ["x", "out", "T"]
[fixed]
d = 14336
*/
#include <cuda_bf16.h>
#include <stdint.h>
// one block per token; 16-byte accesses; d = 14336
__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

extern "C" __global__ void silu_and_mul(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ out, int T) {
  const int d = 14336;
  const size_t t = blockIdx.x;
  const uint4* gate = reinterpret_cast<const uint4*>(x + t * 2 * d);
  const uint4* up = reinterpret_cast<const uint4*>(x + t * 2 * d + d);
  uint4* o = reinterpret_cast<uint4*>(out + t * d);
  for (int i = threadIdx.x; i < d / 8; i += blockDim.x) {
    uint4 g = gate[i], u = up[i], r;
    const __nv_bfloat16* gp = reinterpret_cast<const __nv_bfloat16*>(&g);
    const __nv_bfloat16* vp = reinterpret_cast<const __nv_bfloat16*>(&u);
    __nv_bfloat16* rp = reinterpret_cast<__nv_bfloat16*>(&r);
#pragma unroll
    for (int k = 0; k < 8; ++k) rp[k] = __float2bfloat16(silu(__bfloat162float(gp[k])) * __bfloat162float(vp[k]));
    o[i] = r;
  }
}
