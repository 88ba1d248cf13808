/* tunesmith 1
entry = "matmul"
grid  = ["ceil_div(N, 16)", "ceil_div(M, 16)"]
block = ["16", "16"]
args  = ["A", "B", "C", "M"]
*/
// One work-item per output. Each of the 2*M*N*K flops costs half a load: the loads are the bound.
#define DIM_N 768  // dim: N
#define DIM_K 768  // dim: K

__kernel void matmul(__global const float* A, __global const float* B, __global float* C, int M) {
  const int n = get_global_id(0), m = get_global_id(1);
  if (m >= M || n >= DIM_N) return;
  float sum = 0.0f;
  for (int k = 0; k < DIM_K; ++k) sum += A[(size_t)m * DIM_K + k] * B[(size_t)k * DIM_N + n];
  C[(size_t)m * DIM_N + n] = sum;
}
