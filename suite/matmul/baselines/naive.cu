/* tunesmith 1
entry = "matmul"
grid  = ["ceil_div(N, 16)", "ceil_div(M, 16)"]
block = ["16", "16"]
args  = ["A", "B", "C", "M"]
*/
// One thread per output. Each of the 2*M*N*K flops costs half a load from L1 or L2: the loads are the bound, at about a
// tenth of the arithmetic rate.
#define DIM_N 4096  // dim: N
#define DIM_K 4096  // dim: K

extern "C" __global__ void matmul(const float* A, const float* B, float* C, int M) {
  const int n = blockIdx.x * 16 + threadIdx.x, m = blockIdx.y * 16 + threadIdx.y;
  if (m >= M || n >= DIM_N) return;
  float sum = 0.0f;
  for (int k = 0; k < DIM_K; ++k) sum += A[(size_t)m * DIM_K + k] * B[(size_t)k * DIM_N + n];
  C[(size_t)m * DIM_N + n] = sum;
}
