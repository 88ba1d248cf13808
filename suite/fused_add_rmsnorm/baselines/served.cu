/* tunesmith 1
[let]
VEC     = "16 // sizeof(io)"
vectors = "d // VEC"                                   # in a row
wide    = "min(1024, round_up(vectors, 32))"           # threads where every row has an SM for itself: a vector each
narrow  = "min(512, round_up(ceil_div(vectors, 2), 32))"  # threads where rows are many: two each
[require]
"rows hold whole vectors" = "d % VEC == 0"
"a row fits in the registers of a block" = "vectors <= 4096"
[[launch]]
entry = "fused_add_rmsnorm<WIDE>"
grid  = ["T"]
block = ["wide"]
args  = ["x", "residual", "w", "eps"]
when  = "T <= sms"
[[launch]]
entry = "fused_add_rmsnorm<NARROW>"
grid  = ["T"]
block = ["narrow"]
args  = ["x", "residual", "w", "eps"]
when  = "T > sms"
*/
// One block per row, the row kept in registers, 16-byte accesses, weights loaded before the reduction, one barrier.
// Bound: 8 bytes per element at 2 bytes a number; 4096 x 8192 is 268 MB, 64 us at 4.2 TB/s. For one row it is latency:
// load, five shuffles, barrier, five shuffles, store; so every thread has all its loads in flight at once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using io_t = __nv_bfloat16;  // type: io
#define DIM_D 8192           // dim: d

#define AT_MOST(a, b) ((a) < (b) ? (a) : (b))
constexpr int VEC = 16 / sizeof(io_t), VECTORS = DIM_D / VEC;
constexpr int WIDE = AT_MOST(1024, (VECTORS + 31) / 32 * 32);            // as in the header
constexpr int NARROW = AT_MOST(512, ((VECTORS + 1) / 2 + 31) / 32 * 32);

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ void put2(float* p, float a, float b) { p[0] = a, p[1] = b; }
__device__ __forceinline__ void put2(__half* p, float a, float b) {
  *reinterpret_cast<__half2*>(p) = __floats2half2_rn(a, b);
}
__device__ __forceinline__ void put2(__nv_bfloat16* p, float a, float b) {
  *reinterpret_cast<__nv_bfloat162*>(p) = __floats2bfloat162_rn(a, b);
}

union Pack {
  uint4 raw;
  io_t v[VEC];
};

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}

template <int BLOCK>
__global__ void __launch_bounds__(BLOCK, 1)
fused_add_rmsnorm(io_t* __restrict__ x, io_t* __restrict__ residual, const io_t* __restrict__ weight, float eps) {
  constexpr int ITEMS = (VECTORS + BLOCK - 1) / BLOCK, WARPS = BLOCK / 32;
  __shared__ float part[WARPS];
  uint4* const xs = reinterpret_cast<uint4*>(x) + (size_t)blockIdx.x * VECTORS;
  uint4* const rs = reinterpret_cast<uint4*>(residual) + (size_t)blockIdx.x * VECTORS;
  const int tid = threadIdx.x;
  Pack a[ITEMS], b[ITEMS], w[ITEMS];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int i = tid + k * BLOCK;
    if (i < VECTORS) a[k].raw = xs[i], b[k].raw = rs[i];
  }
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int i = tid + k * BLOCK;
    if (i < VECTORS) w[k].raw = __ldg(reinterpret_cast<const uint4*>(weight) + i);
  }
  float r[ITEMS][VEC], sum = 0.0f;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int i = tid + k * BLOCK;
    if (i >= VECTORS) continue;
#pragma unroll
    for (int e = 0; e < VEC; ++e) {
      r[k][e] = to_float(a[k].v[e]) + to_float(b[k].v[e]);
      sum = fmaf(r[k][e], r[k][e], sum);
    }
#pragma unroll
    for (int e = 0; e < VEC; e += 2) put2(b[k].v + e, r[k][e], r[k][e + 1]);
    rs[i] = b[k].raw;
  }
  sum = warp_sum(sum);
  if (tid % 32 == 0) part[tid / 32] = sum;
  __syncthreads();
  sum = warp_sum(tid % 32 < WARPS ? part[tid % 32] : 0.0f);  // every warp for itself: no second barrier
  const float scale = rsqrtf(sum * (1.0f / DIM_D) + eps);
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int i = tid + k * BLOCK;
    if (i >= VECTORS) continue;
#pragma unroll
    for (int e = 0; e < VEC; e += 2)
      put2(a[k].v + e, r[k][e] * scale * to_float(w[k].v[e]), r[k][e + 1] * scale * to_float(w[k].v[e + 1]));
    xs[i] = a[k].raw;
  }
}
