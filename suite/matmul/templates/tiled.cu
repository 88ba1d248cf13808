/* tunesmith 1
[let]
threads = "BM*BN // (TM*TN)"
tiles   = "ceil_div(M, BM) * ceil_div(N, BN)"
loads   = "4*ceil_div(BM*BK, 4*threads) + 4*ceil_div(BN*BK, 4*threads)"
[require]
"whole warps, at most 512 threads" = "threads % 32 == 0 and 64 <= threads <= 512"
"rows of B and C are whole float4" = "N % 4 == 0"
"each part of K is whole k-tiles" = "K % (SPLIT*BK) == 0"
"sums and loads under way fit in registers" = "TM*TN + loads <= min(65536 // threads, 255) - 60"
[workspace]
parts = "f32[SPLIT*M if SPLIT > 1 else 1, N]"
[[launch]]
entry = "matmul"
grid  = ["tiles", "SPLIT"]
block = ["threads"]
shared_bytes = "4*BUFFERS*BK*(BM + PAD + BN)"
args  = ["A", "B", "C", "parts", "M"]
[[launch]]
entry = "add_parts"
grid  = ["ceil_div(M*N, 1024)"]
block = ["256"]
args  = ["parts", "C", "M"]
when  = "SPLIT > 1"
[[start]]
BM = 64
BN = 64
TM = 4
TN = 4
BK = 16
[[start]]
BM = 16
BN = 128
TM = 4
TN = 4
BK = 32
SPLIT = 4
*/
// BM x BN of C per block, TM x TN per thread, k in steps of BK through shared memory (A transposed), the next step's loads
// under way in registers. Few rows leave too few tiles for the device: then K is split over SPLIT blocks and added up.
// Bound: 2*M*N*K flops at 67 TFLOP/s (4096^3: 2.05 ms), or 4*K*N bytes where M is small (4096^2: 16 us at 4.2 TB/s).
#define BM 128     // tune: 16, 32, 64, 128, 256; rows of C per block
#define BN 128     // tune: 32, 64, 128, 256; columns of C per block
#define BK 8       // tune: 8, 16, 32; k per step
#define TM 8       // tune: 2, 4, 8, 16; rows of C per thread
#define TN 8       // tune: 4, 8; columns of C per thread
#define BUFFERS 2  // tune: 1, 2; tiles in shared memory
#define PAD 4      // tune: 0, 4; floats between the rows of the transposed A
#define UNROLL 8   // tune: 2, 4, 8; of the loop over a step's k
#define GROUP 8    // tune: 1, 4, 8, 16; rows of tiles that are walked together, for L2
#define SPLIT 1    // tune: 1, 2, 4, 8; parts of K

#define DIM_N 4096  // dim: N
#define DIM_K 4096  // dim: K

#define THREADS (BM * BN / (TM * TN))
#define ROWS (BM / TM)            // threads along m, each with pieces of VM rows, ROWS*VM rows apart
#define COLS (BN / TN)            // threads along n, likewise with float4
#define VM (TM < 4 ? TM : 4)
#define LDA (BM + PAD)
#define STAGE (BK * (LDA + BN))
#define LOADS_A ((BM * BK / 4 + THREADS - 1) / THREADS)  // float4 per thread and step
#define LOADS_B ((BN * BK / 4 + THREADS - 1) / THREADS)

template <int V> struct alignas(4 * V) Piece { float at[V]; };

extern "C" __global__ void __launch_bounds__(THREADS)
matmul(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, float* __restrict__ parts, int M) {
  extern __shared__ float4 shared[];
  float* const stages = reinterpret_cast<float*>(shared);
  const int tid = threadIdx.x, tx = tid % COLS, ty = tid / COLS;
  const int tiles_m = (M + BM - 1) / BM, tiles_n = (DIM_N + BN - 1) / BN;
  const int tile = blockIdx.x, per = GROUP * tiles_n, first = tile / per * GROUP, high = min(GROUP, tiles_m - first);
  const int m0 = (first + tile % per % high) * BM, n0 = tile % per / high * BN;
  const int k0 = blockIdx.y * (DIM_K / SPLIT);

  float4 next_a[LOADS_A], next_b[LOADS_B];
  auto load = [&](int k) {
#pragma unroll
    for (int j = 0; j < LOADS_A; ++j) {
      const int i = tid + j * THREADS, r = i / (BK / 4), c = i % (BK / 4) * 4;
      next_a[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (r < BM && m0 + r < M) next_a[j] = *reinterpret_cast<const float4*>(A + (size_t)(m0 + r) * DIM_K + k + c);
    }
#pragma unroll
    for (int j = 0; j < LOADS_B; ++j) {
      const int i = tid + j * THREADS, r = i / (BN / 4), c = i % (BN / 4) * 4;
      next_b[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (r < BK && n0 + c < DIM_N) next_b[j] = *reinterpret_cast<const float4*>(B + (size_t)(k + r) * DIM_N + n0 + c);
    }
  };
  auto store = [&](float* a) {
#pragma unroll
    for (int j = 0; j < LOADS_A; ++j) {
      const int i = tid + j * THREADS, r = i / (BK / 4), c = i % (BK / 4) * 4;
      if (r < BM) {
        a[c * LDA + r] = next_a[j].x;
        a[(c + 1) * LDA + r] = next_a[j].y;
        a[(c + 2) * LDA + r] = next_a[j].z;
        a[(c + 3) * LDA + r] = next_a[j].w;
      }
    }
#pragma unroll
    for (int j = 0; j < LOADS_B; ++j) {
      const int i = tid + j * THREADS, r = i / (BN / 4), c = i % (BN / 4) * 4;
      if (r < BK) *reinterpret_cast<float4*>(a + BK * LDA + r * BN + c) = next_b[j];
    }
  };

  float acc[TM][TN] = {};
  constexpr int STEPS = DIM_K / SPLIT / BK;
  load(k0);
  store(stages);
  __syncthreads();
  for (int step = 0; step < STEPS; ++step) {
    if (step + 1 < STEPS) load(k0 + (step + 1) * BK);
    const float* a = stages + step % BUFFERS * STAGE + ty * VM;
    const float* b = stages + step % BUFFERS * STAGE + BK * LDA + tx * 4;
#pragma unroll UNROLL
    for (int k = 0; k < BK; ++k) {
      Piece<VM> x[TM / VM];
      Piece<4> y[TN / 4];
#pragma unroll
      for (int i = 0; i < TM / VM; ++i) x[i] = *reinterpret_cast<const Piece<VM>*>(a + k * LDA + i * ROWS * VM);
#pragma unroll
      for (int j = 0; j < TN / 4; ++j) y[j] = *reinterpret_cast<const Piece<4>*>(b + k * BN + j * COLS * 4);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(x[i / VM].at[i % VM], y[j / 4].at[j % 4], acc[i][j]);
    }
    if (step + 1 < STEPS) {
      if (BUFFERS == 1) __syncthreads();  // everyone has read the only buffer
      store(stages + (step + 1) % BUFFERS * STAGE);
      __syncthreads();
    }
  }

  float* to = SPLIT == 1 ? C : parts + (size_t)blockIdx.y * M * DIM_N;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int m = m0 + i / VM * ROWS * VM + ty * VM + i % VM;
    if (m >= M) continue;
#pragma unroll
    for (int j = 0; j < TN; j += 4) {
      const int n = n0 + j * COLS + tx * 4;
      if (n < DIM_N)
        *reinterpret_cast<float4*>(to + (size_t)m * DIM_N + n) = make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) add_parts(const float* __restrict__ parts, float* __restrict__ C, int M) {
  const size_t many = (size_t)M * DIM_N / 4, i = (size_t)blockIdx.x * 256 + threadIdx.x;
  if (i >= many) return;
  float4 sum = reinterpret_cast<const float4*>(parts)[i];
  for (int p = 1; p < SPLIT; ++p) {
    const float4 more = reinterpret_cast<const float4*>(parts)[p * many + i];
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  }
  reinterpret_cast<float4*>(C)[i] = sum;
}
