/* tunesmith 1
entry   = "row_softmax"
grid    = ["ceil_div(T, ROWS)*SPLIT"]
block   = ["THREADS", "ROWS"]
cluster = ["SPLIT"]
args    = ["x", "y", "T"]
[let]
vectors = "V // VEC"                                   # in a row
items   = "ceil_div(vectors, THREADS*SPLIT)"           # vectors per thread
[require]
"a row holds whole vectors" = "V % VEC == 0"
"an access is at most 16 bytes" = "VEC*sizeof(io) <= 16"
"a block has at most 1024 threads" = "THREADS*ROWS <= 1024"
"a split row has its blocks for itself" = "SPLIT == 1 or ROWS == 1"
"what a thread keeps fits in its registers" = "KEEP == 0 or max(THREADS*ROWS, OCC)*(26 + items*(VEC + VEC*sizeof(io) // 4)) <= 65536"
"a thread keeps few vectors" = "KEEP == 0 or items*VEC <= 64"
"a register target holds at least one block" = "OCC == 0 or THREADS*ROWS <= OCC"
[[start]]
THREADS = 1024
SPLIT = 8
KEEP = 1
[[start]]
THREADS = 256
KEEP = 1
FAST = 1
[[start]]
THREADS = 512
KEEP = 1
[[start]]
THREADS = 1024
SPLIT = 4
FAST = 1
*/
// THREADS of one block (or of SPLIT blocks in a cluster) share a row; ROWS rows share a block. A thread keeps the
// largest value it has met and a sum relative to it; one reduction of these pairs serves the row.
// Bound: 4 bytes per element at 2 bytes a number; 256 x 128256 is 131 MB, 31 us at 4.2 TB/s.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using io_t = __nv_bfloat16;  // type: io
#define DIM_V 4096           // dim: V
#define THREADS 256  // tune: 32, 64, 128, 192, 256, 384, 512, 768, 1024; threads per row and block
#define ROWS 1       // tune: 1, 2, 4, 8; rows per block
#define SPLIT 1      // tune: 1, 2, 4, 8; blocks per row, a cluster
#define VEC 8        // tune: 2, 4, 8; elements per access
#define KEEP 0       // tune: 0, 1; 1 the row stays in registers, 0 it is read again
#define SECOND 0     // tune: 0, 1; when KEEP == 1; 1 exponentials are computed again for the scaling, not kept
#define FAST 0       // tune: 0, 1; approximate 2^x
#define LOAD 0       // tune: 0, 1; when KEEP == 1; 0 plain, 1 streaming
#define STORE 0      // tune: 0, 1; 0 plain, 1 streaming
#define OCC 0        // tune: 0, 1024, 1536, 2048; threads per SM that the registers must allow; 0 leaves it open

#if OCC / (THREADS * ROWS) >= 1
#define BOUNDS __launch_bounds__(THREADS * ROWS, OCC / (THREADS * ROWS))
#else
#define BOUNDS __launch_bounds__(THREADS * ROWS)
#endif

constexpr int DV = DIM_V / VEC, STEP = THREADS * SPLIT, WARPS = THREADS / 32;
constexpr float LOG2E = 1.44269504f, NOTHING = -1e38f;  // NOTHING: below any value times LOG2E, its differences finite

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ void put2(float* p, float a, float b) { p[0] = a, p[1] = b; }
__device__ __forceinline__ void put2(__half* p, float a, float b) {
  *reinterpret_cast<__half2*>(p) = __floats2half2_rn(a, b);
}
__device__ __forceinline__ void put2(__nv_bfloat16* p, float a, float b) {
  *reinterpret_cast<__nv_bfloat162*>(p) = __floats2bfloat162_rn(a, b);
}

template <int BYTES> struct Raw { using type = uint4; };
template <> struct Raw<4> { using type = unsigned; };
template <> struct Raw<8> { using type = uint2; };
using raw_t = Raw<VEC * sizeof(io_t)>::type;
union Pack {
  raw_t raw;
  io_t v[VEC];
};

__device__ __forceinline__ raw_t load(const raw_t* p) {
#if LOAD == 1
  return __ldcs(p);
#else
  return __ldg(p);
#endif
}

__device__ __forceinline__ void store(raw_t* p, raw_t v) {
#if STORE == 1
  __stcs(p, v);
#else
  *p = v;
#endif
}

__device__ __forceinline__ float power(float v) {
#if FAST
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
#else
  return exp2f(v);
#endif
}

// (largest exponent, sum of 2^(exponent - largest)) over a warp
__device__ __forceinline__ float2 warp_join(float2 a) {
  float top = a.x;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  float sum = a.y * power(a.x - top);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return make_float2(top, sum);
}

#if SPLIT > 1
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

// what `p`, a place in this block's shared memory, holds in another block of the cluster
__device__ __forceinline__ float2 of_block(const float2* p, int rank) {
  unsigned there;
  float2 v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(p)), "r"(rank));
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(there) : "memory");
  return v;
}
#endif

// the pair of the whole row; all threads of the block take part
__device__ __forceinline__ float2 row_join(float2 a) {
  a = warp_join(a);
  const int lane = threadIdx.x % 32;
#if THREADS > 32
  __shared__ float2 part[ROWS][WARPS];
  if (lane == 0) part[threadIdx.y][threadIdx.x / 32] = a;
  __syncthreads();
  a = warp_join(lane < WARPS ? part[threadIdx.y][lane] : make_float2(NOTHING, 0.0f));
#endif
#if SPLIT > 1
  __shared__ float2 whole;
  if (threadIdx.x == 0) whole = a;
  cluster_barrier();
  a = warp_join(lane < SPLIT ? of_block(&whole, lane) : make_float2(NOTHING, 0.0f));
#endif
  return a;
}

extern "C" __global__ void BOUNDS row_softmax(const io_t* __restrict__ x, io_t* __restrict__ y, int T) {
  const int row = blockIdx.x / SPLIT * ROWS + threadIdx.y;
  const int first = blockIdx.x % SPLIT * THREADS + threadIdx.x;  // this thread's first vector
  const int end = row < T ? DV : 0;                             // a thread without a row only keeps the barriers
  const raw_t* from = reinterpret_cast<const raw_t*>(x) + (size_t)row * DV;
  raw_t* to = reinterpret_cast<raw_t*>(y) + (size_t)row * DV;
  float2 mine = make_float2(NOTHING, 0.0f);
#if KEEP
  constexpr int ITEMS = (DV + STEP - 1) / STEP;
  Pack in[ITEMS];
  float e[ITEMS][VEC];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k * STEP < end) in[k].raw = load(from + first + k * STEP);
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k * STEP < end)
#pragma unroll
      for (int i = 0; i < VEC; ++i) mine.x = fmaxf(mine.x, to_float(in[k].v[i]) * LOG2E);
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k * STEP < end)
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        e[k][i] = power(fmaf(to_float(in[k].v[i]), LOG2E, -mine.x));
        mine.y += e[k][i];
      }
  const float2 all = row_join(mine);
#if SECOND
  const float under = 1.0f / all.y;
#else
  const float scale = power(mine.x - all.x) / all.y;
#endif
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k * STEP < end) {
#pragma unroll
      for (int i = 0; i < VEC; i += 2) {
#if SECOND
        put2(in[k].v + i, power(fmaf(to_float(in[k].v[i]), LOG2E, -all.x)) * under,
             power(fmaf(to_float(in[k].v[i + 1]), LOG2E, -all.x)) * under);
#else
        put2(in[k].v + i, e[k][i] * scale, e[k][i + 1] * scale);
#endif
      }
      store(to + first + k * STEP, in[k].raw);
    }
#else
#pragma unroll 4
  for (int j = first; j < end; j += STEP) {
    Pack in;
    in.raw = load(from + j);
    float top = mine.x;
#pragma unroll
    for (int i = 0; i < VEC; ++i) top = fmaxf(top, to_float(in.v[i]) * LOG2E);
    mine.y *= power(mine.x - top);
    mine.x = top;
#pragma unroll
    for (int i = 0; i < VEC; ++i) mine.y += power(fmaf(to_float(in.v[i]), LOG2E, -top));
  }
  const float2 all = row_join(mine);
  const float under = 1.0f / all.y;
#pragma unroll 4
  for (int j = first; j < end; j += STEP) {
    Pack in;
    in.raw = load(from + j);
#pragma unroll
    for (int i = 0; i < VEC; i += 2)
      put2(in.v + i, power(fmaf(to_float(in.v[i]), LOG2E, -all.x)) * under,
           power(fmaf(to_float(in.v[i + 1]), LOG2E, -all.x)) * under);
    store(to + j, in.raw);
  }
#endif
#if SPLIT > 1
  cluster_barrier();  // no block leaves while another may still read its shared memory
#endif
}
