/* tunesmith 1
entry = "matmul"
grid  = ["48", "ceil_div(M, 16)"]
block = ["16", "16"]
args  = ["A", "B", "C", "M"]
[fixed]
N = 768
K = 768
*/
// C[m,n] = sum_k A[m,k] * B[k,n]; N = 768, K = 768; one work-item per output
__kernel void matmul(__global const float* A, __global const float* B, __global float* C, int M) {
  const int N = 768, K = 768;
  const int n = get_global_id(0), m = get_global_id(1);
  if (m >= M || n >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[m * K + k] * B[k * N + n];
  C[m * N + n] = acc;
}
