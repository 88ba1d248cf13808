/* tunesmith 1
entry   = "fused_add_rmsnorm"
grid    = ["ceil_div(T, ROWS)*SPLIT"]
block   = ["THREADS", "ROWS"]
cluster = ["SPLIT"]
args    = ["x", "residual", "w", "eps", "T"]
[let]
vectors = "d // VEC"                                   # in a row
items   = "ceil_div(vectors, THREADS*SPLIT)"           # vectors per thread
[require]
"a row holds whole vectors" = "d % VEC == 0"
"an access is at most 16 bytes" = "VEC*sizeof(io) <= 16"
"a block has at most 1024 threads" = "THREADS*ROWS <= 1024"
"a split row has its blocks for itself" = "SPLIT == 1 or ROWS == 1"
"what a thread keeps fits in its registers" = "KEEP == 0 or max(THREADS*ROWS, OCC)*(28 + items*VEC*(4 if EARLY == 1 else 3) // 2) <= 65536"
"a thread keeps few vectors" = "KEEP == 0 or items*VEC <= 64"
"a register target holds at least one block" = "OCC == 0 or THREADS*ROWS <= OCC"
[[start]]
THREADS = 1024
EARLY = 1
[[start]]
THREADS = 512
EARLY = 1
[[start]]
THREADS = 256
SPLIT = 4
EARLY = 1
[[start]]
THREADS = 32
ROWS = 4
KEEP = 0
*/
// THREADS of one block (or of SPLIT blocks in a cluster) share a row; ROWS rows share a block.
// Bound: 8 bytes per element at 2 bytes a number; 4096 x 8192 is 268 MB, 64 us at 4.2 TB/s. One row is latency.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using io_t = __nv_bfloat16;  // type: io
#define DIM_D 8192           // dim: d
#define THREADS 256  // tune: 32, 64, 128, 192, 256, 384, 512, 768, 1024; threads per row and block
#define ROWS 1       // tune: 1, 2, 4, 8; rows per block
#define SPLIT 1      // tune: 1, 2, 4, 8; blocks per row, a cluster
#define VEC 8        // tune: 2, 4, 8; elements per access
#define KEEP 1       // tune: 0, 1; 1 the row stays in registers, 0 it is read again
#define EARLY 0      // tune: 0, 1; when KEEP == 1; weights are loaded before the reduction
#define LOAD 0       // tune: 0, 1; 0 plain, 1 streaming
#define STORE 0      // tune: 0, 1; of x: 0 plain, 1 streaming
#define OCC 0        // tune: 0, 1024, 1536, 2048; threads per SM that the registers must allow; 0 leaves it open

#if OCC / (THREADS * ROWS) >= 1
#define BOUNDS __launch_bounds__(THREADS * ROWS, OCC / (THREADS * ROWS))
#else
#define BOUNDS __launch_bounds__(THREADS * ROWS)
#endif

constexpr int DV = DIM_D / VEC, STEP = THREADS * SPLIT, WARPS = THREADS / 32;

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
  return *p;
#endif
}

__device__ __forceinline__ void store(raw_t* p, raw_t v) {
#if STORE == 1
  __stcs(p, v);
#else
  *p = v;
#endif
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}

#if SPLIT > 1
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

// what `p`, a place in this block's shared memory, holds in another block of the cluster
__device__ __forceinline__ float of_block(const float* p, int rank) {
  unsigned there;
  float v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(p)), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there) : "memory");
  return v;
}
#endif

// the sum over the threads of a row; all threads of the block take part
__device__ __forceinline__ float row_sum(float v) {
  v = warp_sum(v);
#if THREADS > 32
  __shared__ float part[ROWS][WARPS];
  const int lane = threadIdx.x % 32;
  if (lane == 0) part[threadIdx.y][threadIdx.x / 32] = v;
  __syncthreads();
  v = warp_sum(lane < WARPS ? part[threadIdx.y][lane] : 0.0f);
#endif
#if SPLIT > 1
  __shared__ float whole;
  if (threadIdx.x == 0) whole = v;
  cluster_barrier();
  v = 0.0f;
#pragma unroll
  for (int rank = 0; rank < SPLIT; ++rank) v += of_block(&whole, rank);
#endif
  return v;
}

extern "C" __global__ void BOUNDS fused_add_rmsnorm(io_t* __restrict__ x, io_t* __restrict__ residual,
                                                    const io_t* __restrict__ weight, float eps, int T) {
  const int row = blockIdx.x / SPLIT * ROWS + threadIdx.y;
  const int first = blockIdx.x % SPLIT * THREADS + threadIdx.x;  // this thread's first vector
  const int end = row < T ? DV : 0;                             // a thread without a row only keeps the barriers
  raw_t* const xs = reinterpret_cast<raw_t*>(x) + (size_t)row * DV;
  raw_t* const rs = reinterpret_cast<raw_t*>(residual) + (size_t)row * DV;
  const raw_t* const ws = reinterpret_cast<const raw_t*>(weight);
  float sum = 0.0f;
#if KEEP
  constexpr int ITEMS = (DV + STEP - 1) / STEP;
  Pack a[ITEMS], b[ITEMS], w[ITEMS];
  float r[ITEMS][VEC];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int i = first + k * STEP;
    if (i < end) a[k].raw = load(xs + i), b[k].raw = load(rs + i);
  }
#if EARLY
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k * STEP < end) w[k].raw = __ldg(ws + first + k * STEP);
#endif
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int i = first + k * STEP;
    if (i >= end) continue;
#pragma unroll
    for (int e = 0; e < VEC; ++e) {
      r[k][e] = to_float(a[k].v[e]) + to_float(b[k].v[e]);
      sum += r[k][e] * r[k][e];
    }
#pragma unroll
    for (int e = 0; e < VEC; e += 2) put2(b[k].v + e, r[k][e], r[k][e + 1]);
    rs[i] = b[k].raw;
  }
#else
#pragma unroll 2
  for (int i = first; i < end; i += STEP) {
    Pack a, b;
    a.raw = load(xs + i), b.raw = load(rs + i);
#pragma unroll
    for (int e = 0; e < VEC; e += 2) {
      const float r0 = to_float(a.v[e]) + to_float(b.v[e]), r1 = to_float(a.v[e + 1]) + to_float(b.v[e + 1]);
      sum += r0 * r0 + r1 * r1;
      put2(b.v + e, r0, r1);
    }
    rs[i] = b.raw;
  }
#endif
  const float scale = rsqrtf(row_sum(sum) * (1.0f / DIM_D) + eps);
#if KEEP
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int i = first + k * STEP;
    if (i >= end) continue;
#if !EARLY
    w[k].raw = __ldg(ws + i);
#endif
#pragma unroll
    for (int e = 0; e < VEC; e += 2)
      put2(a[k].v + e, r[k][e] * scale * to_float(w[k].v[e]), r[k][e + 1] * scale * to_float(w[k].v[e + 1]));
    store(xs + i, a[k].raw);
  }
#else
#pragma unroll 2
  for (int i = first; i < end; i += STEP) {  // a thread reads back what it wrote itself
    Pack b, w;
    b.raw = rs[i], w.raw = __ldg(ws + i);
#pragma unroll
    for (int e = 0; e < VEC; e += 2)
      put2(b.v + e, to_float(b.v[e]) * scale * to_float(w.v[e]), to_float(b.v[e + 1]) * scale * to_float(w.v[e + 1]));
    store(xs + i, b.raw);
  }
#endif
#if SPLIT > 1
  cluster_barrier();  // no block leaves while another may still read its shared memory
#endif
}
