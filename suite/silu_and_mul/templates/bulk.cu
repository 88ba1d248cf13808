/* tunesmith 1
entry = "silu_and_mul"
grid  = ["((T if ORDER == 1 else bpr) if STRUCT == 0 else (flat if STRUCT == 1 else (min(flat, 132*BPSM) if STRUCT == 2 else (ceil_div(tiles, STAGES) if STRUCT == 3 else min(tiles, 132*BPSM)))))", "((bpr if ORDER == 1 else T) if STRUCT == 0 else 1)"]
block = ["BLOCK"]
args  = ["x", "out", "T"]
shared_bytes = "(STAGES*BLOCK*ITEMS*VEC*4 if STRUCT >= 3 else 0)"
[fixed]
d = 14336
io = "bf16"
[let]
bpr   = "ceil_div(d // VEC, BLOCK*ITEMS)"
flat  = "ceil_div(T*(d // VEC), BLOCK*ITEMS)"
tiles = "T*(d // (BLOCK*ITEMS*VEC))"
[require]
"a row holds whole vectors" = "d % VEC == 0"
"row chunks leave few idle threads" = "STRUCT != 0 or ceil_div(d // VEC, BLOCK*ITEMS)*BLOCK*ITEMS*VEC*2 <= 3*d"
"the vectors held per thread fit in its registers" = "STRUCT == 3 or max(OCC, BLOCK)*(24 + ITEMS*VEC*(1 + PREFETCH)) <= 65536"
"a register target holds at least one block" = "OCC == 0 or BLOCK <= OCC"
"persistent blocks are all resident by threads" = "(STRUCT != 2 and STRUCT != 4) or BLOCK*BPSM <= 2048"
"bulk tiles divide a row" = "STRUCT < 3 or d % (BLOCK*ITEMS*VEC) == 0"
"bulk stages fit in shared memory" = "STRUCT < 3 or STAGES*BLOCK*ITEMS*VEC*4 <= 196608"
"persistent bulk blocks are all resident by shared memory" = "STRUCT != 4 or BPSM*(STAGES*BLOCK*ITEMS*VEC*4 + 1152) <= 232448"
[[start]]
STRUCT = 0
BLOCK  = 224
VEC    = 8
ITEMS  = 1
MATH   = 2
[[start]]
STRUCT = 0
BLOCK  = 256
VEC    = 8
ITEMS  = 1
MATH   = 1
OCC    = 2048
ST_HINT = 1
[[start]]
STRUCT = 1
BLOCK  = 448
VEC    = 8
ITEMS  = 2
MATH   = 2
[[start]]
STRUCT = 3
BLOCK  = 256
ITEMS  = 1
STAGES = 4
MATH   = 2
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define STRUCT   0    // tune: 0, 1, 2, 3, 4; 0 row chunks on a 2D grid, 1 flat, 2 persistent registers, 3 one-shot bulk copies, 4 persistent bulk ring
#define BLOCK    256  // tune: 64, 128, 224, 256, 448, 512, 896, 1024; threads per block
#define VEC      8    // tune: 2, 4, 8; when STRUCT < 3; elements per access
#define ITEMS    1    // tune: 1, 2, 4, 7, 8; vectors per thread and chunk
#define MATH     1    // tune: 0, 1, 2, 3; 0 expf and fdividef, 1 ex2 and rcp, 2 tanh f32, 3 tanh f16x2
#define LD_HINT  0    // tune: 0, 1, 2, 3; when STRUCT < 3; 0 plain, 1 streaming, 2 L2 only, 3 no L1 allocation with 256B L2 prefetch
#define ST_HINT  0    // tune: 0, 1, 2; 0 plain, 1 streaming, 2 L2 only
#define OCC      0    // tune: 0, 1024, 1536, 2048; threads per SM the register count must allow (0 leaves it to the compiler)
#define ORDER    0    // tune: 0, 1; when STRUCT == 0; 0 chunks of a row are neighbouring blocks, 1 rows are
#define BPSM     2    // tune: 1, 2, 3, 4, 6, 8, 16; when STRUCT == 2 or STRUCT == 4; persistent blocks per SM
#define PREFETCH 0    // tune: 0, 1; when STRUCT == 2; load the next chunk before computing this one
#define STAGES   4    // tune: 1, 2, 3, 4, 6, 8; when STRUCT >= 3; bulk tiles in flight per block

#if OCC / BLOCK >= 1
#define BOUNDS __launch_bounds__(BLOCK, OCC / BLOCK)
#else
#define BOUNDS __launch_bounds__(BLOCK)
#endif

constexpr int D = 14336;
constexpr int DV = D / VEC;             // vectors in half an input row
constexpr int CHUNK = BLOCK * ITEMS;    // vectors a block takes at a time
constexpr bool EXACT = (DV % CHUNK) == 0;

#if VEC == 8
typedef uint4 vec_t;
#elif VEC == 4
typedef uint2 vec_t;
#else
typedef unsigned int vec_t;
#endif

__device__ __forceinline__ vec_t load_vec(const vec_t* p) {
#if LD_HINT == 1
  return __ldcs(p);
#elif LD_HINT == 2
  return __ldcg(p);
#elif LD_HINT == 3
  vec_t v;
#if VEC == 8
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
#elif VEC == 4
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y) : "l"(p));
#else
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.u32 %0, [%1];" : "=r"(v) : "l"(p));
#endif
  return v;
#else
  return __ldg(p);
#endif
}

__device__ __forceinline__ void store_vec(vec_t* p, vec_t v) {
#if ST_HINT == 1
  __stcs(p, v);
#elif ST_HINT == 2
  __stcg(p, v);
#else
  *p = v;
#endif
}

#if MATH != 3
__device__ __forceinline__ float silu(float z) {
#if MATH == 0
  return __fdividef(z, 1.0f + __expf(-z));
#elif MATH == 1
  float e, s;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(z * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(1.0f + e));
  return z * s;
#else
  const float h = 0.5f * z;
  float t;
  asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(h));
  return fmaf(h, t, h);
#endif
}
#endif

// two elements: packed bf16 gate and up in, packed bf16 out
__device__ __forceinline__ uint32_t act2(uint32_t g, uint32_t u) {
  const float g0 = __uint_as_float(g << 16), g1 = __uint_as_float(g & 0xffff0000u);
  const float u0 = __uint_as_float(u << 16), u1 = __uint_as_float(u & 0xffff0000u);
  float r0, r1;
#if MATH == 3
  const float h0 = 0.5f * g0, h1 = 0.5f * g1;
  __half2 hh = __floats2half2_rn(h0, h1);
  uint32_t hb = *reinterpret_cast<uint32_t*>(&hh);
  uint32_t tb;
  asm("tanh.approx.f16x2 %0, %1;" : "=r"(tb) : "r"(hb));
  __half2 th = *reinterpret_cast<__half2*>(&tb);
  const float2 t = __half22float2(th);
  r0 = fmaf(h0, t.x, h0) * u0;
  r1 = fmaf(h1, t.y, h1) * u1;
#else
  r0 = silu(g0) * u0;
  r1 = silu(g1) * u1;
#endif
  __nv_bfloat162 b = __floats2bfloat162_rn(r0, r1);
  return *reinterpret_cast<uint32_t*>(&b);
}

__device__ __forceinline__ vec_t act(vec_t g, vec_t u) {
  vec_t r;
#if VEC == 8
  r.x = act2(g.x, u.x);
  r.y = act2(g.y, u.y);
  r.z = act2(g.z, u.z);
  r.w = act2(g.w, u.w);
#elif VEC == 4
  r.x = act2(g.x, u.x);
  r.y = act2(g.y, u.y);
#else
  r = act2(g, u);
#endif
  return r;
}

#if STRUCT == 1 || STRUCT == 2
// base: first flat vector (of T * DV) of this block's chunk
__device__ __forceinline__ void load_items(const vec_t* xv, unsigned base, unsigned total,
                                           vec_t (&g)[ITEMS], vec_t (&u)[ITEMS]) {
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const unsigned b = base + k * BLOCK;
    const unsigned idx = b + threadIdx.x;
    if (EXACT || idx < total) {
      // the row is the same for the whole block where a row holds whole blocks
      const unsigned row = ((DV % BLOCK) == 0 ? b : idx) / (unsigned)DV;
      const vec_t* p = xv + ((size_t)idx + (size_t)row * DV);
      g[k] = load_vec(p);
      u[k] = load_vec(p + DV);
    }
  }
}

__device__ __forceinline__ void store_items(vec_t* ov, unsigned base, unsigned total,
                                            vec_t (&g)[ITEMS], vec_t (&u)[ITEMS]) {
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const unsigned idx = base + k * BLOCK + threadIdx.x;
    if (EXACT || idx < total) store_vec(ov + idx, act(g[k], u[k]));
  }
}
#endif

#if STRUCT >= 3
__device__ __forceinline__ uint32_t smem_addr(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ void bar_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t"
                 "}"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  } while (!done);
}
#endif

extern "C" __global__ void BOUNDS silu_and_mul(const __nv_bfloat16* __restrict__ x,
                                               __nv_bfloat16* __restrict__ out, int T) {
  const vec_t* xv = reinterpret_cast<const vec_t*>(x);
  vec_t* ov = reinterpret_cast<vec_t*>(out);

#if STRUCT == 0
  // a block takes one chunk of one row
#if ORDER == 0
  const int part = blockIdx.x, row = blockIdx.y;
#else
  const int part = blockIdx.y, row = blockIdx.x;
#endif
  const int c0 = part * CHUNK + threadIdx.x;
  const vec_t* gate = xv + ((size_t)row * (2 * DV) + c0);
  const vec_t* up = gate + DV;
  vec_t* o = ov + ((size_t)row * DV + c0);
  vec_t g[ITEMS], u[ITEMS];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    if (EXACT || c0 + k * BLOCK < DV) {
      g[k] = load_vec(gate + k * BLOCK);
      u[k] = load_vec(up + k * BLOCK);
    }
  }
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    if (EXACT || c0 + k * BLOCK < DV) store_vec(o + k * BLOCK, act(g[k], u[k]));
  }

#elif STRUCT == 1
  // a block takes one chunk of the flattened output, across row ends
  const unsigned total = (unsigned)T * (unsigned)DV;
  const unsigned base = blockIdx.x * (unsigned)CHUNK;
  vec_t g[ITEMS], u[ITEMS];
  load_items(xv, base, total, g, u);
  store_items(ov, base, total, g, u);

#elif STRUCT == 2
  // persistent blocks stride over the flattened output
  const unsigned total = (unsigned)T * (unsigned)DV;
  const unsigned stride = gridDim.x * (unsigned)CHUNK;
  unsigned base = blockIdx.x * (unsigned)CHUNK;
#if PREFETCH
  vec_t g[ITEMS], u[ITEMS];
  if (base < total) load_items(xv, base, total, g, u);
  while (base < total) {
    const unsigned next = base + stride;
    vec_t g2[ITEMS], u2[ITEMS];
    if (next < total) load_items(xv, next, total, g2, u2);
    store_items(ov, base, total, g, u);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      g[k] = g2[k];
      u[k] = u2[k];
    }
    base = next;
  }
#else
  for (; base < total; base += stride) {
    vec_t g[ITEMS], u[ITEMS];
    load_items(xv, base, total, g, u);
    store_items(ov, base, total, g, u);
  }
#endif

#else
  // bulk asynchronous copies into shared memory, one barrier per stage
  extern __shared__ __align__(128) unsigned char smem[];
  __shared__ __align__(8) uint64_t bars[STAGES];
  constexpr int TILE = CHUNK * VEC;                 // elements
  constexpr unsigned TPR = D / TILE;                // tiles per row
  constexpr uint32_t TBYTES = TILE * 2;
  const unsigned tiles = (unsigned)T * TPR;
#if STRUCT == 3
  const unsigned first = blockIdx.x * (unsigned)STAGES;
  const unsigned step = 1;
  const int n = (int)min((unsigned)STAGES, tiles - first);
#else
  const unsigned first = blockIdx.x;
  const unsigned step = gridDim.x;
  const int n = (int)((tiles - first + step - 1) / step);
#endif
  const uint32_t smem0 = smem_addr(smem);
  const uint32_t bar0 = smem_addr(bars);

  auto issue = [&](int i, int s) {
    const unsigned tile = first + (unsigned)i * step;
    const unsigned row = tile / TPR;
    const unsigned col = tile - row * TPR;
    const __nv_bfloat16* src = x + ((size_t)row * (2 * D) + (size_t)col * TILE);
    const uint32_t bar = bar0 + 8u * (uint32_t)s;
    const uint32_t dst = smem0 + (uint32_t)s * (2u * TBYTES);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(bar), "r"(2u * TBYTES) : "memory");
    bulk_load(dst, src, TBYTES, bar);
    bulk_load(dst + TBYTES, src + D, TBYTES, bar);
  };

  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar0 + 8u * (uint32_t)s) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      if (s < n) issue(s, s);
  }
  __syncthreads();

  int s = 0;
  uint32_t parity = 0;
  for (int i = 0; i < n; ++i) {
    const unsigned tile = first + (unsigned)i * step;
    const vec_t* sg = reinterpret_cast<const vec_t*>(smem + (size_t)s * (2 * TBYTES)) + threadIdx.x;
    const vec_t* su = sg + CHUNK;
    vec_t* o = ov + ((size_t)tile * CHUNK + threadIdx.x);
    bar_wait(bar0 + 8u * (uint32_t)s, parity);
#if STRUCT == 3
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) store_vec(o + k * BLOCK, act(sg[k * BLOCK], su[k * BLOCK]));
#else
    vec_t g[ITEMS], u[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      g[k] = sg[k * BLOCK];
      u[k] = su[k * BLOCK];
    }
    if (i + STAGES < n) {       // everyone has read the stage: refill it
      __syncthreads();
      if (threadIdx.x == 0) issue(i + STAGES, s);
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) store_vec(o + k * BLOCK, act(g[k], u[k]));
#endif
    if (++s == STAGES) {
      s = 0;
      parity ^= 1u;
    }
  }
#endif
}
