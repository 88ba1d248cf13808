/* tunesmith 1
entry = "decode_attention"
grid  = ["hq", "B"]
block = ["1", "1"]
args  = ["lengths", "page_table", "q", "k_pool", "v_pool", "scale", "out", "W", "stride(q, 0)"]
[require]
"whole groups of query heads" = "hq % hk == 0"
*/
// One work-item per sequence and head, token by token with a running maximum. Bound: 4*d flops per token and head.
#define HQ 8      // dim: hq
#define HK 2      // dim: hk
#define DIM_D 64  // dim: d
#define PAGE 16   // dim: page
typedef float io_t;  // type: io

__kernel void decode_attention(__global const int* lengths, __global const int* page_table, __global const io_t* q,
                               __global const io_t* k_pool, __global const io_t* v_pool, float scale, __global io_t* out,
                               int width, int q_stride) {
  const int h = get_global_id(0), b = get_global_id(1);
  __global const io_t* query = q + (size_t)b * q_stride + h * DIM_D;
  float acc[DIM_D], top = -INFINITY, total = 0.0f;
  for (int i = 0; i < DIM_D; ++i) acc[i] = 0.0f;
  for (int t = 0; t < lengths[b]; ++t) {
    const size_t slot = (size_t)page_table[(size_t)b * width + t / PAGE] * PAGE + t % PAGE;
    const size_t at = (slot * HK + h / (HQ / HK)) * DIM_D;
    float score = 0.0f;
    for (int i = 0; i < DIM_D; ++i) score += query[i] * k_pool[at + i];
    score *= scale;
    const float higher = fmax(top, score), keep = exp(top - higher), p = exp(score - higher);
    total = total * keep + p;
    for (int i = 0; i < DIM_D; ++i) acc[i] = acc[i] * keep + p * v_pool[at + i];
    top = higher;
  }
  for (int i = 0; i < DIM_D; ++i) out[((size_t)b * HQ + h) * DIM_D + i] = total > 0.0f ? acc[i] / total : 0.0f;
}
