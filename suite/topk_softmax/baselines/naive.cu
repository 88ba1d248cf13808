/* tunesmith 1
entry = "topk_softmax"
grid  = ["T"]
block = ["128"]
args  = ["logits", "w", "idx"]
*/
// One block per row: the maximum, the sum, then k times the best that is left, each a tree over the block.
// Bound: 4*E bytes per row (E = 256, T = 16384: 4 us); here k + 2 trees of 7 steps with a barrier each take ten times that.
#include <math_constants.h>
#define DIM_E 256  // dim: E
#define DIM_K 8    // dim: k
#define BLOCK 128

extern "C" __global__ void __launch_bounds__(BLOCK) topk_softmax(const float* logits, float* w, int* idx) {
  __shared__ float row[DIM_E], value[BLOCK];
  __shared__ int place[BLOCK];
  const int t = threadIdx.x;
  const size_t r = blockIdx.x;
  float best = -CUDART_INF_F;
  for (int e = t; e < DIM_E; e += BLOCK) {
    row[e] = logits[r * DIM_E + e];
    best = fmaxf(best, row[e]);
  }
  value[t] = best;
  __syncthreads();
  for (int o = BLOCK / 2; o > 0; o /= 2) {
    if (t < o) value[t] = fmaxf(value[t], value[t + o]);
    __syncthreads();
  }
  const float top = value[0];
  __syncthreads();

  float sum = 0.0f;
  for (int e = t; e < DIM_E; e += BLOCK) sum += expf(row[e] - top);
  value[t] = sum;
  __syncthreads();
  for (int o = BLOCK / 2; o > 0; o /= 2) {
    if (t < o) value[t] += value[t + o];
    __syncthreads();
  }
  const float total = value[0];
  __syncthreads();

  for (int k = 0; k < DIM_K; ++k) {
    float most = -CUDART_INF_F;
    int at = DIM_E;
    for (int e = t; e < DIM_E; e += BLOCK)
      if (row[e] > most) most = row[e], at = e;  // the first of equal ones
    value[t] = most, place[t] = at;
    __syncthreads();
    for (int o = BLOCK / 2; o > 0; o /= 2) {
      if (t < o && (value[t + o] > value[t] || (value[t + o] == value[t] && place[t + o] < place[t])))
        value[t] = value[t + o], place[t] = place[t + o];
      __syncthreads();
    }
    if (t == 0) {
      w[r * DIM_K + k] = expf(value[0] - top) / total;
      idx[r * DIM_K + k] = place[0];
      row[place[0]] = -CUDART_INF_F;  // taken
    }
    __syncthreads();
  }
}
