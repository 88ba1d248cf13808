/* tunesmith 1
entry = "row_softmax"
grid  = ["ceil_div(T, 8)"]
block = ["8"]
args  = ["x", "y", "T"]
*/
// One work-item per row, three passes. Bound: 8 bytes per element in f32 and one exp; here two scalar exps of about
// 20 cycles each, far slower than memory.
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
typedef float io_t;  // type: io
#define DIM_V 4096   // dim: V

__kernel void row_softmax(__global const io_t* x, __global io_t* y, int T) {
  const size_t t = get_global_id(0);
  if (t >= T) return;
  x += t * DIM_V;
  y += t * DIM_V;
  float largest = -INFINITY, sum = 0.0f;
  for (int j = 0; j < DIM_V; ++j) largest = fmax(largest, (float)x[j]);
  for (int j = 0; j < DIM_V; ++j) sum += exp((float)x[j] - largest);
  for (int j = 0; j < DIM_V; ++j) y[j] = (io_t)(exp((float)x[j] - largest) / sum);
}
