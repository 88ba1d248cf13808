/* tunesmith 1
entry = "gemm_bf16"
grid  = ["64", "ceil_div(M, 64)"]
block = ["128"]
args  = ["A", "B", "C", "M"]
[fixed]
N = 4096
K = 4096
*/
#include <cuda_bf16.h>
#include <mma.h>
#include <stdint.h>
using namespace nvcuda;
// C[m,n] = sum_k A[m,k] * B[n,k]; 64 x 64 tile per block of 128 threads, one k-step of 32 at a time; N = 4096, K = 4096
extern "C" __global__ void gemm_bf16(const __nv_bfloat16* __restrict__ A, const __nv_bfloat16* __restrict__ B, __nv_bfloat16* __restrict__ C, int M) {
  const int N = 4096, K = 4096;
  __shared__ __nv_bfloat16 a[64][40], b[64][40];
  __shared__ float c[64][64];
  const int m0 = blockIdx.y * 64, n0 = blockIdx.x * 64, warp = threadIdx.x / 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4];
  for (int j = 0; j < 4; ++j) wmma::fill_fragment(acc[j], 0.0f);
  for (int k0 = 0; k0 < K; k0 += 32) {
    for (int i = threadIdx.x; i < 64 * 4; i += 128) {
      const int r = i / 4, q = i % 4;
      uint4 z = make_uint4(0, 0, 0, 0);
      if (m0 + r < M) z = *reinterpret_cast<const uint4*>(A + (size_t)(m0 + r) * K + k0 + q * 8);
      *reinterpret_cast<uint4*>(&a[r][q * 8]) = z;
      *reinterpret_cast<uint4*>(&b[r][q * 8]) = *reinterpret_cast<const uint4*>(B + (size_t)(n0 + r) * K + k0 + q * 8);
    }
    __syncthreads();
    for (int kk = 0; kk < 32; kk += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> fa;
      wmma::load_matrix_sync(fa, &a[warp * 16][kk], 40);
      for (int j = 0; j < 4; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> fb;
        wmma::load_matrix_sync(fb, &b[j * 16][kk], 40);
        wmma::mma_sync(acc[j], fa, fb, acc[j]);
      }
    }
    __syncthreads();
  }
  for (int j = 0; j < 4; ++j) wmma::store_matrix_sync(&c[warp * 16][j * 16], acc[j], 64, wmma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * 64; i += 128)
    if (m0 + i / 64 < M) C[(size_t)(m0 + i / 64) * N + n0 + i % 64] = __float2bfloat16(c[i / 64][i % 64]);
}
