/* tunesmith 1
entry = "topk_softmax"
grid  = ["ceil_div(T, 16)"]
block = ["16"]
args  = ["logits", "w", "idx", "T"]
*/
// One work-item per row, k + 2 passes over it: the next best comes after the last one in the order (value down, place up).
// Bound: 4*E bytes per row; here k*E comparisons are far more.
#define DIM_E 256  // dim: E
#define DIM_K 8    // dim: k

__kernel void topk_softmax(__global const float* logits, __global float* w, __global int* idx, int T) {
  const int t = get_global_id(0);
  if (t >= T) return;
  __global const float* row = logits + (size_t)t * DIM_E;
  float top = -INFINITY, total = 0.0f;
  for (int e = 0; e < DIM_E; ++e) top = fmax(top, row[e]);
  for (int e = 0; e < DIM_E; ++e) total += exp(row[e] - top);
  float last = INFINITY;
  int place = -1;
  for (int k = 0; k < DIM_K; ++k) {
    float most = -INFINITY;
    int at = DIM_E;
    for (int e = 0; e < DIM_E; ++e) {
      const bool after = row[e] < last || (row[e] == last && e > place);
      if (after && row[e] > most) most = row[e], at = e;
    }
    last = most, place = at;
    w[(size_t)t * DIM_K + k] = exp(most - top) / total;
    idx[(size_t)t * DIM_K + k] = at;
  }
}
