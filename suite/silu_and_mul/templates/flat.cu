/* tunesmith 1
entry = "silu_and_mul"
grid  = ["units if PER_SM == 0 else min(units, PER_SM*sms)"]
block = ["BLOCK"]
args  = ["x", "out", "T"]
[let]
per_row = "d // VEC"                                   # vectors in half an input row
chunk   = "BLOCK*ITEMS"                                # vectors that a block takes at a time
units   = "ceil_div(T*per_row, chunk) if MAP == 0 else T*ceil_div(per_row, chunk)"
[require]
"a row holds whole vectors" = "d % VEC == 0"
"an access is at most 16 bytes" = "VEC*sizeof(io) <= 16"
"gate and up of a thread fit in its registers" = "ITEMS*VEC <= 32 and max(BLOCK, OCC)*(26 + ITEMS*(VEC + 1)) <= 65536"
"a register target holds at least one block" = "OCC == 0 or BLOCK <= OCC"
"vectors are counted in 31 bits" = "T*per_row + chunk < 2147483648"
[[start]]
FAST = 1
[[start]]
FAST = 2
BLOCK = 128
VEC = 4
[[start]]
FAST = 1
MAP = 1
ITEMS = 2
[[start]]
FAST = 2
BLOCK = 512
OCC = 2048
*/
// Each block takes chunks of vectors, of the flattened output (MAP 0) or of one row (MAP 1).
// Bound: 6 bytes per element at 2 bytes a number; 4096 x 14336 is 352 MB, 84 us at 4.2 TB/s.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using io_t = __nv_bfloat16;  // type: io
#define DIM_D 14336          // dim: d
#define BLOCK 256   // tune: 64, 96, 128, 192, 224, 256, 384, 448, 512, 1024; threads per block
#define VEC 8       // tune: 2, 4, 8; elements per access
#define ITEMS 1     // tune: 1, 2, 4, 8; vectors of each half that a thread has in flight
#define MAP 0       // tune: 0, 1; 0 across rows without idle threads, 1 a chunk stays in its row
#define PER_SM 0    // tune: 0, 1, 2, 4, 8, 16; blocks per SM that stay and stride; 0 one block per chunk
#define FAST 0      // tune: 0, 1, 2; 0 expf and division, 1 their fast forms, 2 one tanh
#define LOAD 0      // tune: 0, 1, 2; 0 plain, 1 streaming, 2 L2 only
#define STORE 0     // tune: 0, 1, 2; 0 plain, 1 streaming, 2 L2 only
#define OCC 0       // tune: 0, 1024, 1536, 2048; threads per SM that the registers must allow; 0 leaves it open

#if OCC / BLOCK >= 1
#define BOUNDS __launch_bounds__(BLOCK, OCC / BLOCK)
#else
#define BOUNDS __launch_bounds__(BLOCK)
#endif

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
#elif LOAD == 2
  return __ldcg(p);
#else
  return __ldg(p);
#endif
}

__device__ __forceinline__ void store(raw_t* p, raw_t v) {
#if STORE == 1
  __stcs(p, v);
#elif STORE == 2
  __stcg(p, v);
#else
  *p = v;
#endif
}

__device__ __forceinline__ float silu(float z) {
#if FAST == 0
  return z / (1.0f + expf(-z));
#elif FAST == 1
  return __fdividef(z, 1.0f + __expf(-z));
#else
  const float h = 0.5f * z;  // z / (1 + e^-z) = h + h tanh(h)
  float t;
  asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(h));
  return fmaf(h, t, h);
#endif
}

extern "C" __global__ void BOUNDS silu_and_mul(const io_t* __restrict__ x, io_t* __restrict__ out, int T) {
  constexpr unsigned DV = DIM_D / VEC, CHUNK = BLOCK * ITEMS, PER_ROW = (DV + CHUNK - 1) / CHUNK;
  const raw_t* from = reinterpret_cast<const raw_t*>(x);
  raw_t* to = reinterpret_cast<raw_t*>(out);
  const unsigned total = T * DV;
  const unsigned units = MAP == 0 ? (total + CHUNK - 1) / CHUNK : T * PER_ROW;
  for (unsigned unit = blockIdx.x; unit < units; unit += gridDim.x) {
    // where this thread's first vector stands in the output, and where its chunk ends
    const unsigned row = unit / PER_ROW;  // of MAP 1
    const unsigned first = (MAP == 0 ? unit * CHUNK : row * DV + (unit - row * PER_ROW) * CHUNK) + threadIdx.x;
    const unsigned end = MAP == 0 ? total : (row + 1) * DV;
    Pack gate[ITEMS], up[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const unsigned i = first + k * BLOCK;
      if (i < end) {
        const raw_t* p = from + ((size_t)(MAP == 0 ? i / DV : row) * DV + i);  // row * 2 DV + column
        gate[k].raw = load(p);
        up[k].raw = load(p + DV);
      }
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const unsigned i = first + k * BLOCK;
      if (i < end) {
        Pack result;
#pragma unroll
        for (int e = 0; e < VEC; e += 2)
          put2(result.v + e, silu(to_float(gate[k].v[e])) * to_float(up[k].v[e]),
               silu(to_float(gate[k].v[e + 1])) * to_float(up[k].v[e + 1]));
        store(to + i, result.raw);
      }
    }
  }
}
