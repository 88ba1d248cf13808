/* tunesmith 1
entry = "routed_activation"
grid  = ["ceil_div(rows, ROWS)", "ceil_div(d, THREADS*VEC*CHUNKS)"]
block = ["THREADS"]
args  = ["counts", "offsets", "x", "out", "rows"]
[require]
"a vector is at most 16 bytes" = "VEC*sizeof(io) <= 16"
"a row is whole vectors" = "d % VEC == 0"
"no thread is idle in every row" = "THREADS*VEC*CHUNKS < 2*d"
[[start]]
ROWS = 8
THREADS = 256
[[start]]
ROWS = 1
CHUNKS = 2
FIND = "counting"
*/
// ROWS rows per block; groups begin at multiples of 64, so they have one expert, which is looked for once.
// Bound: 3*d*sizeof(io) bytes per row in use. Blocks of padding only read a few offsets.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define THREADS 128   // tune: 64, 96, 128, 192, 256, 512; threads per block
#define VEC 8         // tune: 1, 2, 4, 8; elements per access
#define ROWS 4        // tune: 1, 2, 4, 8, 16, 32; rows per block
#define CHUNKS 1      // tune: 1, 2, 4; vectors per thread and row
#define UNROLL 2      // tune: 1, 2, 4; when ROWS > 1; rows under way at once
#define FIND halving  // tune: halving, counting; how the expert is found: by every thread alone, or by a warp together
#define HINT 0        // tune: 0, 1; 1: loads and stores marked as streaming
#define FAST 1        // tune: 0, 1; approximate exp and division

#define EXPERTS 128  // dim: E
#define DIM_D 768    // dim: d
using io_t = __nv_bfloat16;  // type: io

struct alignas(VEC * sizeof(io_t)) Pack { io_t at[VEC]; };

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(__half x) { return __half2float(x); }
__device__ __forceinline__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float x, float& to) { to = x; }
__device__ __forceinline__ void narrow(float x, __half& to) { to = __float2half_rn(x); }
__device__ __forceinline__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

// an integer of the size of a Pack, which is what the hints work on
template <int BYTES> struct Word;
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };
using word_t = Word<sizeof(Pack)>::type;

__device__ __forceinline__ Pack load(const io_t* from) {
  const word_t* p = reinterpret_cast<const word_t*>(from);
  const word_t word = HINT ? __ldcs(p) : *p;
  return reinterpret_cast<const Pack&>(word);
}
__device__ __forceinline__ void store(io_t* to, const Pack& pack) {
  word_t* p = reinterpret_cast<word_t*>(to);
  if (HINT) __stcs(p, reinterpret_cast<const word_t&>(pack));
  else *p = reinterpret_cast<const word_t&>(pack);
}

// The last expert that begins at or before the row, which lies before the end of all: offsets[0] = 0 <= row < offsets[EXPERTS].
__device__ __forceinline__ int halving(const int* offsets, int row) {
  int low = 0, high = EXPERTS;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (offsets[middle] <= row) low = middle;
    else high = middle;
  }
  return low;
}
__device__ __forceinline__ int counting(const int* offsets, int row) {
  int before = 0;
  for (int e = threadIdx.x % 32; e < EXPERTS; e += 32) before += offsets[e] <= row;
  for (int o = 16; o > 0; o /= 2) before += __shfl_xor_sync(0xffffffffu, before, o);
  return before - 1;
}

extern "C" __global__ void __launch_bounds__(THREADS)
routed_activation(const int* __restrict__ counts, const int* __restrict__ offsets, const io_t* __restrict__ x,
                  io_t* __restrict__ out, int rows) {
  const int first = blockIdx.x * ROWS;
  if (first >= min(rows, offsets[EXPERTS])) return;  // the same for the whole block, so that warps stay whole below
  const int expert = FIND(offsets, first);
  const int end = min(first + ROWS, offsets[expert] + counts[expert]);
#pragma unroll UNROLL
  for (int row = first; row < end; ++row) {
    const io_t* gates = x + (size_t)row * 2 * DIM_D;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const int i = ((blockIdx.y * CHUNKS + c) * THREADS + threadIdx.x) * VEC;
      if (i >= DIM_D) break;
      const Pack gate = load(gates + i), up = load(gates + DIM_D + i);
      Pack y;
#pragma unroll
      for (int v = 0; v < VEC; ++v) {
        const float g = wide(gate.at[v]), u = wide(up.at[v]);
        narrow(FAST ? __fdividef(g, 1.0f + __expf(-g)) * u : g / (1.0f + expf(-g)) * u, y.at[v]);
      }
      store(out + (size_t)row * DIM_D + i, y);
    }
  }
}
