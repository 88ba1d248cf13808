/* tunesmith 1
[let]
group = "hq // hk"
lanes = "d // VEC"
[require]
"whole groups of query heads" = "hq % hk == 0"
"a vector is 4 to 16 bytes" = "4 <= VEC*sizeof(io) <= 16"
"a token's lanes divide a warp" = "d % VEC == 0 and lanes <= 32 and 32 % lanes == 0"
"queries, sums and tokens under way fit in registers" = "2*group*VEC + TOKENS*VEC*sizeof(io) // 2 + TOKENS*group <= 200"
[workspace]
parts = "f32[B*hq*SPLITS, d]"
tops  = "f32[B*hq*SPLITS, 2]"
[[launch]]
entry = "attend"
grid  = ["SPLITS", "hk", "B"]
block = ["32*WARPS"]
shared_bytes = "WARPS*group*(d + 2)*4"
args  = ["lengths", "page_table", "q", "k_pool", "v_pool", "scale", "out", "parts", "tops", "W", "stride(q, 0)"]
[[launch]]
entry = "merge"
grid  = ["ceil_div(B*hq, MERGE)"]
block = ["32*MERGE"]
args  = ["out", "parts", "tops", "B"]
when  = "SPLITS > 1"
[[start]]
SPLITS = 1
WARPS = 8
[[start]]
SPLITS = 16
TOKENS = 4
*/
// A block per sequence, key head and part of the length; the query heads of the group share what it reads. d/VEC lanes hold
// a token, 32*VEC/d tokens a warp, TOKENS of those under way at once. A second launch merges the parts.
// Bound: 4*hk*d bytes per token (32,000 tokens of 8 x 128: 31 us at 4.2 TB/s); hq/hk = 4 heads make it 4 flops per byte.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define SPLITS 8   // tune: 1, 2, 4, 8, 16, 32; parts of each sequence
#define WARPS 4    // tune: 1, 2, 4, 8; warps per block
#define VEC 8      // tune: 2, 4, 8; elements per access
#define TOKENS 2   // tune: 1, 2, 4; tokens that a lane has under way
#define EARLY 1    // tune: 0, 1; V is read before the scores are known
#define WHOLE 1    // tune: 0, 1; when SPLITS > 1; parts are whole pages
#define MERGE 4    // tune: 1, 2, 4, 8; when SPLITS > 1; heads per block of the merge, a warp each

#define HQ 32      // dim: hq
#define HK 8       // dim: hk
#define DIM_D 128  // dim: d
#define PAGE 16    // dim: page
using io_t = __nv_bfloat16;  // type: io

#define GROUP (HQ / HK)
#define LANES (DIM_D / VEC)  // that hold a token
#define ABREAST (32 / LANES)  // tokens side by side in a warp
#define ROW (DIM_D + 2)      // a warp's sums in shared memory, then its maximum and total
#define NONE (-3.0e38f)      // a maximum over nothing; finite, so that differences are never NaN
#define ALL 0xffffffffu

struct alignas(VEC * sizeof(io_t)) Pack { io_t at[VEC]; };

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(__half x) { return __half2float(x); }
__device__ __forceinline__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float x, float& to) { to = x; }
__device__ __forceinline__ void narrow(float x, __half& to) { to = __float2half_rn(x); }
__device__ __forceinline__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

extern "C" __global__ void __launch_bounds__(32 * WARPS)
attend(const int* __restrict__ lengths, const int* __restrict__ page_table, const io_t* __restrict__ q,
       const io_t* __restrict__ k_pool, const io_t* __restrict__ v_pool, float scale, io_t* __restrict__ out,
       float* __restrict__ parts, float* __restrict__ tops, int width, int q_stride) {
  extern __shared__ float sums[];  // [WARPS][GROUP][ROW]
  const int part = blockIdx.x, head = blockIdx.y, b = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, beside = lane / LANES, at = lane % LANES * VEC;
  const int unit = WHOLE ? PAGE : 1, length = lengths[b];
  const int each = ((length + unit - 1) / unit + SPLITS - 1) / SPLITS * unit;
  const int begin = min(part * each, length), end = min(begin + each, length);
  const int* table = page_table + (size_t)b * width;

  float query[GROUP][VEC], acc[GROUP][VEC], top[GROUP], total[GROUP];
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    const Pack x = *reinterpret_cast<const Pack*>(q + (size_t)b * q_stride + (head * GROUP + g) * DIM_D + at);
#pragma unroll
    for (int i = 0; i < VEC; ++i) query[g][i] = wide(x.at[i]) * scale, acc[g][i] = 0.0f;
    top[g] = NONE, total[g] = 0.0f;
  }

  // the bounds are the warp's, so that every lane takes part in the shuffles
  for (int base = begin + warp * ABREAST * TOKENS; base < end; base += WARPS * ABREAST * TOKENS) {
    Pack k[TOKENS], v[TOKENS];
    size_t where[TOKENS];
    float s[TOKENS][GROUP];
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
      const int token = min(base + t * ABREAST + beside, end - 1);  // past the end: the last one again, not counted below
      where[t] = (((size_t)table[token / PAGE] * PAGE + token % PAGE) * HK + head) * DIM_D + at;
      k[t] = *reinterpret_cast<const Pack*>(k_pool + where[t]);
      if (EARLY) v[t] = *reinterpret_cast<const Pack*>(v_pool + where[t]);
    }
#pragma unroll
    for (int t = 0; t < TOKENS; ++t)
#pragma unroll
      for (int g = 0; g < GROUP; ++g) {
        float dot = 0.0f;
#pragma unroll
        for (int i = 0; i < VEC; ++i) dot = fmaf(query[g][i], wide(k[t].at[i]), dot);
#pragma unroll
        for (int o = LANES / 2; o > 0; o /= 2) dot += __shfl_xor_sync(ALL, dot, o);
        s[t][g] = dot;
      }
    if (!EARLY) {
#pragma unroll
      for (int t = 0; t < TOKENS; ++t) v[t] = *reinterpret_cast<const Pack*>(v_pool + where[t]);
    }
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      float higher = top[g];
#pragma unroll
      for (int t = 0; t < TOKENS; ++t) higher = fmaxf(higher, s[t][g]);  // the last token again changes no maximum
      const float keep = __expf(top[g] - higher);
      top[g] = higher, total[g] *= keep;
#pragma unroll
      for (int i = 0; i < VEC; ++i) acc[g][i] *= keep;
#pragma unroll
      for (int t = 0; t < TOKENS; ++t) {
        const float p = base + t * ABREAST + beside < end ? __expf(s[t][g] - higher) : 0.0f;
        total[g] += p;
#pragma unroll
        for (int i = 0; i < VEC; ++i) acc[g][i] = fmaf(p, wide(v[t].at[i]), acc[g][i]);
      }
    }
  }

  // the warp's tokens side by side, then its neighbours
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
#pragma unroll
    for (int o = LANES; o < 32; o *= 2) {
      const float other = __shfl_xor_sync(ALL, top[g], o), more = __shfl_xor_sync(ALL, total[g], o);
      const float higher = fmaxf(top[g], other), mine = __expf(top[g] - higher), theirs = __expf(other - higher);
      top[g] = higher, total[g] = total[g] * mine + more * theirs;
#pragma unroll
      for (int i = 0; i < VEC; ++i) acc[g][i] = acc[g][i] * mine + __shfl_xor_sync(ALL, acc[g][i], o) * theirs;
    }
    float* row = sums + (warp * GROUP + g) * ROW;
    if (beside == 0) {
#pragma unroll
      for (int i = 0; i < VEC; ++i) row[at + i] = acc[g][i];
    }
    if (lane == 0) row[DIM_D] = top[g], row[DIM_D + 1] = total[g];
  }
  __syncthreads();
  for (int x = threadIdx.x; x < GROUP * DIM_D; x += 32 * WARPS) {
    const int g = x / DIM_D, i = x % DIM_D;
    float higher = NONE, all = 0.0f, value = 0.0f;
    for (int w = 0; w < WARPS; ++w) higher = fmaxf(higher, sums[(w * GROUP + g) * ROW + DIM_D]);
    for (int w = 0; w < WARPS; ++w) {
      const float* row = sums + (w * GROUP + g) * ROW;
      const float share = __expf(row[DIM_D] - higher);
      all = fmaf(share, row[DIM_D + 1], all), value = fmaf(share, row[i], value);
    }
    const size_t r = (size_t)b * HQ + head * GROUP + g;
    if (SPLITS == 1) {
      narrow(all > 0.0f ? value / all : 0.0f, out[r * DIM_D + i]);
    } else {
      parts[(r * SPLITS + part) * DIM_D + i] = value;
      if (i == 0) tops[(r * SPLITS + part) * 2] = higher, tops[(r * SPLITS + part) * 2 + 1] = all;
    }
  }
}

extern "C" __global__ void __launch_bounds__(32 * MERGE)
merge(io_t* __restrict__ out, const float* __restrict__ parts, const float* __restrict__ tops, int batch) {
  const int r = blockIdx.x * MERGE + threadIdx.x / 32;
  if (r >= batch * HQ) return;
  const float* of = tops + (size_t)r * SPLITS * 2;
  float higher = NONE, all = 0.0f, share[SPLITS];
#pragma unroll
  for (int s = 0; s < SPLITS; ++s) higher = fmaxf(higher, of[2 * s]);
#pragma unroll
  for (int s = 0; s < SPLITS; ++s) {
    share[s] = __expf(of[2 * s] - higher);
    all = fmaf(share[s], of[2 * s + 1], all);
  }
  for (int i = threadIdx.x % 32; i < DIM_D; i += 32) {
    float value = 0.0f;
#pragma unroll
    for (int s = 0; s < SPLITS; ++s) value = fmaf(share[s], parts[((size_t)r * SPLITS + s) * DIM_D + i], value);
    narrow(all > 0.0f ? value / all : 0.0f, out[(size_t)r * DIM_D + i]);
  }
}
