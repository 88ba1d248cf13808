/* tunesmith 1
entry = "silu_and_mul"
grid  = ["16 * T if T <= 64 else 4 * T"]
block = ["224"]
args  = ["x", "out", "T"]
[fixed]
d = 14336
*/
#include <cuda_bf16.h>
#include <stdint.h>

// d = 14336 = 16 * 224 * 4 (small T: 16 blocks per row, one 8-byte access per thread and operand)
//           =  4 * 448 * 8 (large T:  4 blocks per row, two 16-byte accesses per thread and operand)
// silu(z) = z/2 * (1 + tanh(z/2)): one special-function instruction per element.

static constexpr int kD = 14336;
static constexpr int kBlock = 224;

__device__ __forceinline__ float tanh_fast(float v) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

__device__ __forceinline__ float silu_mul(float g, float u) {
  const float h = 0.5f * g;
  const float s = fmaf(h, tanh_fast(h), h);
  return s * u;
}

__device__ __forceinline__ uint32_t silu_mul_pair(uint32_t g, uint32_t u) {
  const float lo = silu_mul(__uint_as_float(g << 16), __uint_as_float(u << 16));
  const float hi = silu_mul(__uint_as_float(g & 0xffff0000u), __uint_as_float(u & 0xffff0000u));
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

__device__ __forceinline__ uint4 silu_mul_vec(const uint4 g, const uint4 u) {
  uint4 r;
  r.x = silu_mul_pair(g.x, u.x);
  r.y = silu_mul_pair(g.y, u.y);
  r.z = silu_mul_pair(g.z, u.z);
  r.w = silu_mul_pair(g.w, u.w);
  return r;
}

extern "C" __global__ void __launch_bounds__(kBlock, 9)
silu_and_mul(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ out, int T) {
  const uint32_t b = blockIdx.x;
  const uint32_t tid = threadIdx.x;

  if (T <= 64) {
    const uint32_t row = b >> 4;
    const uint32_t col = (b & 15u) * kBlock + tid;  // in units of 4 elements
    const uint2* p = reinterpret_cast<const uint2*>(x) + (size_t)row * (2 * kD / 4) + col;
    uint2* o = reinterpret_cast<uint2*>(out) + (size_t)row * (kD / 4) + col;

    const uint2 g = __ldg(p);
    const uint2 u = __ldg(p + kD / 4);
    uint2 r;
    r.x = silu_mul_pair(g.x, u.x);
    r.y = silu_mul_pair(g.y, u.y);
    *o = r;
  } else {
    const uint32_t row = b >> 2;
    const uint32_t col = (b & 3u) * (2 * kBlock) + tid;  // in units of 8 elements
    const uint4* p = reinterpret_cast<const uint4*>(x) + (size_t)row * (2 * kD / 8) + col;
    uint4* o = reinterpret_cast<uint4*>(out) + (size_t)row * (kD / 8) + col;

    const uint4 g0 = __ldg(p);
    const uint4 u0 = __ldg(p + kD / 8);
    const uint4 g1 = __ldg(p + kBlock);
    const uint4 u1 = __ldg(p + kD / 8 + kBlock);

    o[0] = silu_mul_vec(g0, u0);
    o[kBlock] = silu_mul_vec(g1, u1);
  }
}
