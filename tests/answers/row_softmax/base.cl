/* tunesmith 1
entry = "row_softmax"
grid  = ["ceil_div(T, 8)"]
block = ["8"]
args  = ["x", "y", "T"]
[fixed]
V = 4096
*/
// y[t, :] = softmax(x[t, :]) over V = 4096 columns; one work-item per row
__kernel void row_softmax(__global const float* x, __global float* y, int T) {
  const int V = 4096;
  const int t = get_global_id(0);
  if (t >= T) return;
  __global const float* r = x + (size_t)t * V;
  __global float* o = y + (size_t)t * V;
  float m = -INFINITY;
  for (int j = 0; j < V; ++j) m = fmax(m, r[j]);
  float s = 0.0f;
  for (int j = 0; j < V; ++j) s += exp(r[j] - m);
  for (int j = 0; j < V; ++j) o[j] = exp(r[j] - m) / s;
}
