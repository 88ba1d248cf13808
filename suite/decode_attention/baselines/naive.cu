/* tunesmith 1
entry = "decode_attention"
grid  = ["hq", "B"]
block = ["128"]
args  = ["lengths", "page_table", "q", "k_pool", "v_pool", "scale", "out", "W", "stride(q, 0)"]
[require]
"a head is spread over a warp" = "d % 32 == 0"
"whole groups of query heads" = "hq % hk == 0"
*/
// One block per sequence and head; each of 4 warps takes every fourth token, a lane d/32 numbers of it, with a running
// maximum. Bound: 4*hk*d bytes per token; here the hq/hk heads of a group each read K and V, and few sequences leave SMs idle.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define HQ 32      // dim: hq
#define HK 8       // dim: hk
#define DIM_D 128  // dim: d
#define PAGE 16    // dim: page
using io_t = __nv_bfloat16;  // type: io
#define EACH (DIM_D / 32)
#define NONE (-3.0e38f)  // a maximum over nothing; finite, so that differences are never NaN

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(__half x) { return __half2float(x); }
__device__ __forceinline__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float x, float& to) { to = x; }
__device__ __forceinline__ void narrow(float x, __half& to) { to = __float2half_rn(x); }
__device__ __forceinline__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

extern "C" __global__ void decode_attention(const int* lengths, const int* page_table, const io_t* q, const io_t* k_pool,
                                            const io_t* v_pool, float scale, io_t* out, int width, int q_stride) {
  __shared__ float sums[4][DIM_D], tops[4], totals[4];
  const int h = blockIdx.x, b = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float query[EACH], acc[EACH], top = NONE, total = 0.0f;
  for (int i = 0; i < EACH; ++i) {
    query[i] = wide(q[(size_t)b * q_stride + h * DIM_D + i * 32 + lane]) * scale;
    acc[i] = 0.0f;
  }
  for (int t = warp; t < lengths[b]; t += 4) {
    const size_t slot = (size_t)page_table[(size_t)b * width + t / PAGE] * PAGE + t % PAGE;
    const size_t at = (slot * HK + h / (HQ / HK)) * DIM_D + lane;
    float score = 0.0f;
    for (int i = 0; i < EACH; ++i) score += query[i] * wide(k_pool[at + i * 32]);
    for (int o = 16; o > 0; o /= 2) score += __shfl_xor_sync(0xffffffffu, score, o);
    const float higher = fmaxf(top, score), keep = expf(top - higher), p = expf(score - higher);
    total = total * keep + p;
    for (int i = 0; i < EACH; ++i) acc[i] = acc[i] * keep + p * wide(v_pool[at + i * 32]);
    top = higher;
  }
  for (int i = 0; i < EACH; ++i) sums[warp][i * 32 + lane] = acc[i];
  if (lane == 0) tops[warp] = top, totals[warp] = total;
  __syncthreads();
  for (int i = threadIdx.x; i < DIM_D; i += 128) {
    const float highest = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
    float value = 0.0f, all = 0.0f;
    for (int w = 0; w < 4; ++w) {
      value += sums[w][i] * expf(tops[w] - highest);
      all += totals[w] * expf(tops[w] - highest);
    }
    narrow(all > 0.0f ? value / all : 0.0f, out[((size_t)b * HQ + h) * DIM_D + i]);
  }
}
