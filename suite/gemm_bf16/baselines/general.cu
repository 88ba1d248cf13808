/* tunesmith 1
entry = "gemm_bf16"
grid  = ["ceil_div(N, 128)", "ceil_div(M, 128)"]
block = ["256"]
shared_bytes = "65536"
args  = ["A", "B", "C", "M"]
[require]
"whole k-tiles, and rows of C that are whole pairs" = "K % 32 == 0 and N % 2 == 0"
[fixed]
io = "bf16"
*/
// A 128 x 128 tile per block, 64 x 32 per warp, k in steps of 32 through four stages of cp.async; ldmatrix and mma.sync.
// Bound: 2*M*N*K flops; mma.sync reaches about two thirds of the 780 TFLOP/s that wgmma does, 260 us for 4096^3.
#include <cuda_bf16.h>
#include <stdint.h>
#define DIM_N 4096  // dim: N
#define DIM_K 4096  // dim: K
#define STAGES 4
#define TILE 8192  // bytes of 128 rows of 32 bf16

// 64-byte rows; the 16-byte chunks of a row are exchanged so that the 8 rows of an ldmatrix touch all banks once
__device__ __forceinline__ uint32_t place(int row, int chunk) { return row * 64 + ((chunk ^ (row / 2 % 4)) << 4); }

__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

extern "C" __global__ void __launch_bounds__(256, 2)
gemm_bf16(const __nv_bfloat16* __restrict__ A, const __nv_bfloat16* __restrict__ B, __nv_bfloat16* __restrict__ C, int M) {
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
  const int m0 = blockIdx.y * 128, n0 = blockIdx.x * 128;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wm = warp / 4 * 64, wn = warp % 4 * 32;

  auto load = [&](int step) {  // rows beyond the matrix are filled with zeros
    if (step < DIM_K / 32) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = threadIdx.x + j % 2 * 256, row = i / 4, chunk = i % 4;
        const bool of_a = j < 2, in = of_a ? m0 + row < M : n0 + row < DIM_N;
        const __nv_bfloat16* from = (of_a ? A : B) + (size_t)(in ? (of_a ? m0 : n0) + row : 0) * DIM_K + step * 32 + chunk * 8;
        const uint32_t to = base + step % STAGES * 2 * TILE + (of_a ? 0 : TILE) + place(row, chunk);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(in ? 16 : 0) : "memory");
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");  // also an empty one, so that the count is the step's
  };

  float acc[4][4][4] = {};
  for (int s = 0; s < STAGES - 1; ++s) load(s);
  for (int step = 0; step < DIM_K / 32; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();  // this step has arrived for all, and all have read the stage that is loaded next
    load(step + STAGES - 1);
    const uint32_t a = base + step % STAGES * 2 * TILE, b = a + TILE;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      uint32_t fa[4][4], fb[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) ldmatrix(fa[i], a + place(wm + i * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
      for (int j = 0; j < 2; ++j) ldmatrix(fb[j], b + place(wn + j * 16 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                       "{%0, %1, %2, %3};"
                       : "+f"(acc[i][j][0]), "+f"(acc[i][j][1]), "+f"(acc[i][j][2]), "+f"(acc[i][j][3])
                       : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j / 2][j % 2 * 2]),
                         "r"(fb[j / 2][j % 2 * 2 + 1]));
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int m = m0 + wm + i * 16 + lane / 4, n = n0 + wn + j * 8 + lane % 4 * 2;
      if (n >= DIM_N) continue;
      if (m < M) *reinterpret_cast<__nv_bfloat162*>(C + (size_t)m * DIM_N + n) = __floats2bfloat162_rn(acc[i][j][0], acc[i][j][1]);
      if (m + 8 < M)
        *reinterpret_cast<__nv_bfloat162*>(C + (size_t)(m + 8) * DIM_N + n) = __floats2bfloat162_rn(acc[i][j][2], acc[i][j][3]);
    }
}
