/* tunesmith 1
entry   = "row_softmax"
grid    = ["T*SPLIT"]
block   = ["BLOCK"]
cluster = ["SPLIT"]
args    = ["x", "y", "T"]
[let]
VEC     = "16 // sizeof(io)"
vectors = "V // VEC"                                   # in a row
SPLIT   = "1 if vectors <= 2048 else (2 if vectors <= 4096 else (4 if vectors <= 8192 else 8))"  # blocks per row
BLOCK   = "min(1024, round_up(ceil_div(vectors, 2*SPLIT), 32))"
[require]
"rows hold whole vectors" = "V % VEC == 0"
"a part of a row fits in the registers of its block" = "vectors <= 8*1024*4"
*/
// A row belongs to one block, a long one to a cluster of up to eight, and stays in registers: read once, written once.
// Each thread takes its own largest value as reference, so that one reduction, of (largest, sum) pairs, serves a row.
// Bound: 4 bytes per element at 2 bytes a number; 256 x 128256 is 131 MB, 31 us at 4.2 TB/s. 16 such rows on 16 of 132
// SMs would reach an eighth of that: hence the clusters.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using io_t = __nv_bfloat16;  // type: io
#define DIM_V 4096           // dim: V

#define AT_MOST(a, b) ((a) < (b) ? (a) : (b))
constexpr int VEC = 16 / sizeof(io_t), VECTORS = DIM_V / VEC;
constexpr int SPLIT = VECTORS <= 2048 ? 1 : VECTORS <= 4096 ? 2 : VECTORS <= 8192 ? 4 : 8;  // as in the header
constexpr int BLOCK = AT_MOST(1024, ((VECTORS + 2 * SPLIT - 1) / (2 * SPLIT) + 31) / 32 * 32);
constexpr int STEP = BLOCK * SPLIT, ITEMS = (VECTORS + STEP - 1) / STEP, WARPS = BLOCK / 32;
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

union Pack {
  uint4 raw;
  io_t v[VEC];
};

__device__ __forceinline__ float exp2_fast(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

// (largest exponent, sum of 2^(exponent - largest)) over a warp
__device__ __forceinline__ float2 warp_join(float2 a) {
  float top = a.x;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  float sum = a.y * exp2_fast(a.x - top);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return make_float2(top, sum);
}

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

extern "C" __global__ void __launch_bounds__(BLOCK) row_softmax(const io_t* __restrict__ x, io_t* __restrict__ y, int T) {
  __shared__ float2 part[WARPS], whole;
  const int lane = threadIdx.x % 32, first = blockIdx.x % SPLIT * BLOCK + threadIdx.x;
  const uint4* from = reinterpret_cast<const uint4*>(x) + (size_t)(blockIdx.x / SPLIT) * VECTORS;
  uint4* to = reinterpret_cast<uint4*>(y) + (size_t)(blockIdx.x / SPLIT) * VECTORS;
  Pack in[ITEMS];
  float e[ITEMS][VEC];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k * STEP < VECTORS) in[k].raw = __ldg(from + first + k * STEP);
  float2 mine = make_float2(NOTHING, 0.0f);
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k * STEP < VECTORS)
#pragma unroll
      for (int i = 0; i < VEC; ++i) mine.x = fmaxf(mine.x, to_float(in[k].v[i]) * LOG2E);
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k * STEP < VECTORS)
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        e[k][i] = exp2_fast(fmaf(to_float(in[k].v[i]), LOG2E, -mine.x));
        mine.y += e[k][i];
      }
  float2 all = warp_join(mine);
  if (lane == 0) part[threadIdx.x / 32] = all;
  __syncthreads();
  all = warp_join(lane < WARPS ? part[lane] : make_float2(NOTHING, 0.0f));
  if constexpr (SPLIT > 1) {
    if (threadIdx.x == 0) whole = all;
    cluster_barrier();
    all = warp_join(lane < SPLIT ? of_block(&whole, lane) : make_float2(NOTHING, 0.0f));
  }
  const float scale = exp2_fast(mine.x - all.x) / all.y;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k * STEP < VECTORS) {
#pragma unroll
      for (int i = 0; i < VEC; i += 2) put2(in[k].v + i, e[k][i] * scale, e[k][i + 1] * scale);
      to[first + k * STEP] = in[k].raw;
    }
  if constexpr (SPLIT > 1) cluster_barrier();  // no block leaves while another may still read its shared memory
}
