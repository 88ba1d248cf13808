/* tunesmith 1
entry = "gemm_bf16"
grid  = ["ceil_div(N, 16)", "ceil_div(M, 4)"]
block = ["16", "4"]
args  = ["A", "B", "C", "M"]
*/
// One work-item per output, a dot product of two rows: 2*M*N*K flops, each with half a load.
#define DIM_N 1024  // dim: N
#define DIM_K 1024  // dim: K
typedef float io_t;  // type: io

__kernel void gemm_bf16(__global const io_t* A, __global const io_t* B, __global io_t* C, int M) {
  const int n = get_global_id(0), m = get_global_id(1);
  if (m >= M || n >= DIM_N) return;
  float sum = 0.0f;
  for (int k = 0; k < DIM_K; ++k) sum += A[(size_t)m * DIM_K + k] * B[(size_t)n * DIM_K + k];
  C[(size_t)m * DIM_N + n] = sum;
}
