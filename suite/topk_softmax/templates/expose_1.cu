/* tunesmith 1
entry = "topk_softmax"
grid  = ["ceil_div(T, wpb*rpw)"]
block = ["32*wpb"]
args  = ["logits", "w", "idx", "T"]
[fixed]
E = 256
k = 8
[let]
wpb = "min(WARPS, max(WARPS_SMALL, T // 128))"
rpw = "ROWS if T >= 1024 else 1"
[require]
"the launch bounds cover the blocks of a small T" = "WARPS_SMALL <= WARPS"
"one store instruction serves at most two rows" = "STORE == 0 or ROWS <= 2"
"the rows of a warp need registers" = "MINW*ROWS <= 64"
[[start]]
ROWS = 2
MINW = 16
KEY  = 1
[[start]]
SELECT = 2
CAP    = 1
CHECK  = 1
[[start]]
SELECT = 1
EARLY  = 1
STORE  = 1
KSCALE = 16
[[start]]
WARPS  = 8
SUM    = 2
KEY    = 1
KSCALE = 8
*/
// One warp per row (or ROWS rows), 8 logits per lane and row, everything in registers.
// Every logit becomes ONE unique 32-bit key: a 24-bit monotone code of the value (clamped to +-0.75 * KSCALE)
// above 8 bits of (255 - index).  A lane sorts its 8 keys (the best KEEP are kept), then 8 rounds of redux.max + pop
// give values and indices at once; exps and their (fixed-point redux) sum run in the shadow of those rounds.
// Equal codes among the top 9, out-of-range rows and exhausted lanes are detected and redone exactly (rare).
#include <stdint.h>
#include <math_constants.h>

#define WARPS 4         // tune: 1, 2, 4, 8, 16; warps per block at large T
#define WARPS_SMALL 1   // tune: 1, 2, 4; warps per block at small T
#define MINW 32         // tune: 8, 16, 32, 48; launch bounds, warps that must fit on an SM
#define ROWS 1          // tune: 1, 2, 4; rows per warp from T = 1024 on, their rounds interleaved (one row below)
#define VEC 4           // tune: 1, 2, 4; floats per load, with it the mapping of a row to lanes
#define VEC_SMALL 0     // tune: 0, 1, 2, 4; the same below T = 1024, 0 is as VEC
#define LD 0            // tune: 0, 1, 2, 3, 4; loads are ldg, ldcs, nc no_allocate, nc L2 prefetch 128B, nc L2 prefetch 256B
#define STORE 0         // tune: 0, 1; 0 is two stores by 8 lanes, 1 is one store of w and idx together by 16 lanes
#define SELECT 0        // tune: 0, 1, 2, 3; pop by selects, pop by predicated moves, sorted keys and add-max without pops, add-max over the 8 unsorted keys
#define SELECT_SMALL 4  // tune: 0, 1, 2, 3, 4; the same below T = 1024, 4 is as SELECT
#define KEEP 5          // tune: 4, 5, 6, 8; when SELECT <= 2 or SELECT_SMALL <= 2; sorted keys kept per lane (fewer means more rows redone)
#define EARLY 0         // tune: 0, 1; when SELECT <= 2 or SELECT_SMALL <= 2; 1 is the first redux before the end of the sort
#define KEY 0           // tune: 0, 1; code and index are joined by prmt or by mad
#define CAP 0           // tune: 0, 1; the lane picks its result in each round, or by a tree of selects at the end
#define CHECK 0         // tune: 0, 1; equal codes are detected by a shuffle at the end, or uniformly in each round
#define SUM 0           // tune: 0, 1, 2; fixed-point redux, float shuffles, float shuffles of exps not relative to the maximum
#define SUM_ROUND 5     // tune: 4, 5, 6, 7; when SUM == 0; the round that issues the redux of the sum
#define KSCALE 32       // tune: 8, 16, 32; codes cover +-0.75 * KSCALE (a smaller range has fewer equal codes, rows outside are redone)

#define FULL 0xffffffffu
#define L2E 1.4426950408889634f
#define MINB (MINW / WARPS > 32 ? 32 : (MINW / WARPS > 0 ? MINW / WARPS : 1))

#if SELECT_SMALL == 4
#define SEL_S SELECT
#else
#define SEL_S SELECT_SMALL
#endif
#if VEC_SMALL == 0
#define VEC_S VEC
#else
#define VEC_S VEC_SMALL
#endif

static __device__ __forceinline__ float ex2f(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
static __device__ __forceinline__ float rcpf(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---------------- loads ----------------
#define LD_ASM4(Q)                                            \
  asm("ld.global.nc" Q ".v4.f32 {%0, %1, %2, %3}, [%4];"      \
      : "=f"(a.x), "=f"(a.y), "=f"(a.z), "=f"(a.w) : "l"(p))
#define LD_ASM2(Q) asm("ld.global.nc" Q ".v2.f32 {%0, %1}, [%2];" : "=f"(a.x), "=f"(a.y) : "l"(p))
#define LD_ASM1(Q) asm("ld.global.nc" Q ".f32 %0, [%1];" : "=f"(a) : "l"(p))
#define LD_BODY(ASM)                     \
  if (LD == 0) {                         \
    a = __ldg(p);                        \
  } else if (LD == 1) {                  \
    a = __ldcs(p);                       \
  } else if (LD == 2) {                  \
    ASM(".L1::no_allocate");             \
  } else if (LD == 3) {                  \
    ASM(".L2::128B");                    \
  } else {                               \
    ASM(".L2::256B");                    \
  }

static __device__ __forceinline__ float4 ld4(const float4* p) {
  float4 a;
  LD_BODY(LD_ASM4)
  return a;
}
static __device__ __forceinline__ float2 ld2(const float2* p) {
  float2 a;
  LD_BODY(LD_ASM2)
  return a;
}
static __device__ __forceinline__ float ld1(const float* p) {
  float a;
  LD_BODY(LD_ASM1)
  return a;
}

template <int V>
static __device__ __forceinline__ void load_row(const float* rowp, unsigned lane, float (&v)[8]) {
  if (V == 4) {
    const float4* p = reinterpret_cast<const float4*>(rowp) + lane;
    const float4 va = ld4(p);
    const float4 vb = ld4(p + 32);
    v[0] = va.x; v[1] = va.y; v[2] = va.z; v[3] = va.w;
    v[4] = vb.x; v[5] = vb.y; v[6] = vb.z; v[7] = vb.w;
  } else if (V == 2) {
    const float2* p = reinterpret_cast<const float2*>(rowp) + lane;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 a = ld2(p + 32 * i);
      v[2 * i] = a.x;
      v[2 * i + 1] = a.y;
    }
  } else {
    const float* p = rowp + lane;
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = ld1(p + 32 * i);
  }
}

// index in the row of slot j of a lane
template <int V>
static __device__ __forceinline__ unsigned slot_index(unsigned lane, int j) {
  return lane * (unsigned)V + (unsigned)(j % V) + (unsigned)(j / V) * (32u * (unsigned)V);
}

// ---------------- keys ----------------
// g = v / KSCALE + 1.25 - 2^-23, clamped to [0.5, 2 - 2^-22]: bits 0x3F000000 .. 0x3FFFFFFE
template <int V>
static __device__ __forceinline__ unsigned make_key(float v, int j, unsigned lane, unsigned c0, unsigned c1) {
  float f;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(f) : "f"(v), "f"(0.020833336645f * (32.0f / KSCALE)), "f"(0.5f));
  const float g = fmaf(f, 0x1.7FFFFCp+0f, 0.5f);
  if (KEY == 0) {
    return __byte_perm(__float_as_uint(g), j < 4 ? c0 : c1, 0x2104u + (unsigned)(j & 3));
  } else {
    unsigned key;
    asm("mad.lo.u32 %0, %1, 256, %2;" : "=r"(key) : "r"(__float_as_uint(g)), "r"(255u - slot_index<V>(lane, j)));
    return key;
  }
}
static __device__ __forceinline__ float key_g(unsigned key) {
  return __uint_as_float(__byte_perm(key, 0x3Fu, 0x4321u));
}

// Batcher, descending; what only feeds keys that are not kept is dead
#define CE(a, b) { const unsigned hi_ = max(a, b); b = min(a, b); a = hi_; }
#define SORT_A(z)                                                 \
  CE(z[0], z[1]) CE(z[2], z[3]) CE(z[4], z[5]) CE(z[6], z[7])     \
  CE(z[0], z[2]) CE(z[1], z[3]) CE(z[4], z[6]) CE(z[5], z[7])
#define SORT_B(z) CE(z[1], z[2]) CE(z[5], z[6])
#define SORT_C(z) CE(z[0], z[4])
#define SORT_D(z)                                                 \
  CE(z[1], z[5]) CE(z[2], z[6]) CE(z[3], z[7])                    \
  CE(z[2], z[4]) CE(z[3], z[5])                                   \
  CE(z[1], z[2]) CE(z[3], z[4]) CE(z[5], z[6])

// After round k found M: q becomes what this lane offers to the next redux.
// SEL 0, 1: the owner of M pops it, q = its best key left.
// SEL 2, 3: nothing moves, q = max(s_i - M) modulo 2^32: the keys below M wrap to the top, those taken stay at the bottom.
template <int SEL>
static __device__ __forceinline__ void advance(unsigned (&s)[8], unsigned& q, unsigned M, int k) {
  if (SEL == 0) {
    const bool mine = (s[0] == M);
#pragma unroll
    for (int i = 0; i + 1 < KEEP; ++i) s[i] = mine ? s[i + 1] : s[i];
    q = s[0];
  } else if (SEL == 1) {
    const unsigned h = s[0];
#pragma unroll
    for (int i = 0; i + 1 < KEEP; ++i) {
      asm("{\n\t.reg .pred p;\n\tsetp.eq.u32 p, %1, %2;\n\t@p mov.u32 %0, %3;\n\t}"
          : "+r"(s[i]) : "r"(h), "r"(M), "r"(s[i + 1]));
    }
    q = s[0];
  } else if (SEL == 2) {
    const unsigned nm = 0u - M;
    unsigned a = s[0] + nm;
#pragma unroll
    for (int i = 1; i < KEEP; ++i) {
      if (i < k + 2) a = __viaddmax_u32(s[i], nm, a);
    }
    q = a;
  } else {
    const unsigned nm = 0u - M;
    unsigned a = s[0] + nm;
    unsigned b = s[1] + nm;
#pragma unroll
    for (int i = 2; i < 8; i += 2) {
      a = __viaddmax_u32(s[i], nm, a);
      b = __viaddmax_u32(s[i + 1], nm, b);
    }
    q = max(a, b);
  }
}

// ---------------- rare: redo a row exactly ----------------
template <int V>
static __device__ __forceinline__ void redo_row(const float (&v)[8], const float* rowp, unsigned lane, unsigned c0,
                                                unsigned c1, unsigned M0, unsigned M7, unsigned cap, unsigned nxt,
                                                bool exhausted, float mref, float inv, size_t ob,
                                                float* __restrict__ w, int* __restrict__ idx) {
  {
    const unsigned floor7 = M7 & ~255u;
    unsigned n = 0, h = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const unsigned k = make_key<V>(v[j], j, lane, c0, c1);
      n += (k >= floor7) ? 1u : 0u;
      h = max(h, k < M7 ? k : 0u);
    }
    n = __reduce_add_sync(FULL, n);
    h = __reduce_max_sync(FULL, h);  // the ninth key
    const bool dup = __any_sync(FULL, (lane < 7u && cap == nxt) || exhausted);
    const bool sat = (M0 >= 0xFFFFFE00u) || (M7 < 256u);
    __syncwarp();
    if (!dup && !sat && (n == 8u || n == 9u)) {
      // the candidates are known (8 or 9): rank them by their exact values
      if (lane == 8u) cap = h;
      const bool live = lane < n;
      const int id = live ? (int)(~cap & 255u) : 512;
      const float val = live ? __ldg(rowp + id) : -CUDART_INF_F;
      int rank = 0;
#pragma unroll
      for (int j = 0; j < 9; ++j) {
        const float vj = __shfl_sync(FULL, val, j);
        const int ij = __shfl_sync(FULL, id, j);
        rank += (vj > val || (vj == val && ij < id)) ? 1 : 0;
      }
      if (live && rank < 8) {
        w[ob + rank] = ex2f((val - mref) * L2E) * inv;
        idx[ob + rank] = id;
      }
      return;
    }
  }

  // anything else: plain softmax, then eight exact argmax rounds over p (ties to the lower index)
  float mx = fmaxf(fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3])), fmaxf(fmaxf(v[4], v[5]), fmaxf(v[6], v[7])));
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) mx = fmaxf(mx, __shfl_xor_sync(FULL, mx, o));
  float p[8];
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    p[j] = expf(v[j] - mx);
    sum += p[j];
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(FULL, sum, o);
  unsigned pk[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) pk[j] = __float_as_uint(p[j] / sum) + 1u;  // p >= 0: the bits are ordered; 0 = taken
  float ow = 0.0f;
  int oi = 0;
#pragma unroll 1
  for (unsigned k = 0; k < 8u; ++k) {
    const unsigned best = max(max(max(pk[0], pk[1]), max(pk[2], pk[3])), max(max(pk[4], pk[5]), max(pk[6], pk[7])));
    const unsigned B = __reduce_max_sync(FULL, best);
    unsigned bi = 1023u;
#pragma unroll
    for (int j = 7; j >= 0; --j) {
      const unsigned ij = slot_index<V>(lane, j);
      bi = (pk[j] == B) ? ij : bi;
    }
    const unsigned I = __reduce_min_sync(FULL, bi);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const unsigned ij = slot_index<V>(lane, j);
      pk[j] = (ij == I) ? 0u : pk[j];
    }
    if (lane == k) {
      ow = __uint_as_float(B - 1u);
      oi = (int)I;
    }
  }
  if (lane < 8u) {
    w[ob + lane] = ow;
    idx[ob + lane] = oi;
  }
}

// ---------------- a warp's R rows ----------------
template <int R, int SEL, int V>
static __device__ __forceinline__ void run_rows(const float* __restrict__ logits, float* __restrict__ w,
                                                int* __restrict__ idx, int T) {
  const unsigned lane = threadIdx.x & 31u;
  const int t0 = (int)(blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5)) * R;
  if (t0 >= T) return;

  float v[R][8];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int t = (R == 1) ? t0 : min(t0 + r, T - 1);
    load_row<V>(logits + (size_t)t * 256, lane, v[r]);
  }

  // bytes j of c0 / c1: 255 - index of slot j / slot 4 + j
  const unsigned c0 = (V == 4 ? 0xFCFDFEFFu : (V == 2 ? 0xBEBFFEFFu : 0x9FBFDFFFu)) - lane * (0x01010101u * (unsigned)V);
  const unsigned c1 = c0 - 0x80808080u;

  unsigned s[R][8], q[R], M[R], M0[R], Mk[R][8], fx[R], tot[R];
  float e[R][8], esum[R], g0[R], mref[R], cexp[R], inv[R];

#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < 8; ++j) s[r][j] = make_key<V>(v[r][j], j, lane, c0, c1);
  }

  if (SUM == 2) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int j = 0; j < 8; ++j) e[r][j] = ex2f(v[r][j] * L2E);
      esum[r] = ((e[r][0] + e[r][1]) + (e[r][2] + e[r][3])) + ((e[r][4] + e[r][5]) + (e[r][6] + e[r][7]));
    }
  }

#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (SEL == 3) {
      q[r] = max(max(max(s[r][0], s[r][1]), max(s[r][2], s[r][3])), max(max(s[r][4], s[r][5]), max(s[r][6], s[r][7])));
    } else if (EARLY == 0) {
      SORT_A(s[r]) SORT_B(s[r]) SORT_C(s[r]) SORT_D(s[r])
      q[r] = s[r][0];
    } else {
      SORT_A(s[r]) SORT_C(s[r])
      q[r] = s[r][0];
    }
  }

  // round 0
  const unsigned rl = (lane >> 3) & (unsigned)(R - 1);                          // the row this lane reports on
  const unsigned slot = (STORE == 1) ? (lane & (8u * (unsigned)R - 1u)) : lane;  // 8 * row + round
#pragma unroll
  for (int r = 0; r < R; ++r) {
    M[r] = __reduce_max_sync(FULL, q[r]);
    M0[r] = M[r];
    Mk[r][0] = M[r];
  }
  if (SEL != 3 && EARLY != 0) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      SORT_B(s[r]) SORT_D(s[r])
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) advance<SEL>(s[r], q[r], M[r], 0);
  unsigned cap = M0[0];
#pragma unroll
  for (int r = 1; r < R; ++r) {
    if (slot == 8u * (unsigned)r) cap = M0[r];
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    g0[r] = key_g(M0[r]);
    mref[r] = (SUM == 2) ? 0.0f : fmaf(g0[r], (float)KSCALE, -0x1.3FFFFEp+0f * (float)KSCALE);
    cexp[r] = -mref[r] * L2E;
  }

  // rounds 1 .. 7, with the exps and the sum
  bool same = false;
#pragma unroll
  for (int k = 1; k < 8; ++k) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const unsigned m = __reduce_max_sync(FULL, q[r]);
      const unsigned mk = (SEL >= 2) ? M[r] + m : m;
      if (CHECK == 1) same = same | ((mk ^ M[r]) < 256u);
      M[r] = mk;
      Mk[r][k] = mk;
    }
    if (SUM == 0 && k == SUM_ROUND) {
#pragma unroll
      for (int r = 0; r < R; ++r) tot[r] = __reduce_add_sync(FULL, fx[r]);
    }
    if (k < 7) {
#pragma unroll
      for (int r = 0; r < R; ++r) advance<SEL>(s[r], q[r], M[r], k);
    }
    if (CAP == 0) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (slot == 8u * (unsigned)r + (unsigned)k) cap = M[r];
      }
    }
    if (SUM != 2 && k <= 3) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          if (j / 3 == k - 1) e[r][j] = ex2f(fmaf(v[r][j], L2E, cexp[r]));
        }
      }
    }
    if (SUM != 2 && k == 3) {
#pragma unroll
      for (int r = 0; r < R; ++r)
        esum[r] = ((e[r][0] + e[r][1]) + (e[r][2] + e[r][3])) + ((e[r][4] + e[r][5]) + (e[r][6] + e[r][7]));
    }
    if (SUM == 0 && k == SUM_ROUND - 1) {
#pragma unroll
      for (int r = 0; r < R; ++r) fx[r] = __float2uint_rn(esum[r] * 8388608.0f);
    }
    if (SUM == 0 && k == SUM_ROUND + 1) {
#pragma unroll
      for (int r = 0; r < R; ++r) inv[r] = rcpf((float)tot[r]) * 8388608.0f;
    }
    if (SUM != 0) {
      const int step = k - (SUM == 1 ? 3 : 1);
      if (step >= 0 && step < 5) {
#pragma unroll
        for (int r = 0; r < R; ++r) esum[r] += __shfl_xor_sync(FULL, esum[r], 16 >> step);
      }
    }
  }
  if (SUM != 0 || SUM_ROUND == 7) {
#pragma unroll
    for (int r = 0; r < R; ++r) inv[r] = (SUM != 0) ? rcpf(esum[r]) : rcpf((float)tot[r]) * 8388608.0f;
  }

  // x: this lane's best outside the top 8
  bool exhausted[R];
  bool xbad = false;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    unsigned x;
    if (SEL <= 1) {
      x = (s[r][0] == M[r]) ? s[r][1] : s[r][0];
    } else {
      advance<SEL>(s[r], q[r], M[r], 7);
      x = q[r] + M[r];
    }
    exhausted[r] = (SEL == 2) && (s[r][KEEP - 1] >= M[r]);
    xbad = xbad || ((x ^ M[r]) < 256u) || exhausted[r];
  }

  if (CAP == 1) {
    const bool b0 = (lane & 1u) != 0u, b1 = (lane & 2u) != 0u, b2 = (lane & 4u) != 0u;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const unsigned a01 = b0 ? Mk[r][1] : Mk[r][0];
      const unsigned a23 = b0 ? Mk[r][3] : Mk[r][2];
      const unsigned a45 = b0 ? Mk[r][5] : Mk[r][4];
      const unsigned a03 = b1 ? a23 : a01;
      const unsigned a46 = b1 ? Mk[r][6] : a45;
      const unsigned a06 = b2 ? a46 : a03;
      const unsigned a07 = ((lane & 7u) == 7u) ? Mk[r][7] : a06;
      cap = (r == 0 || rl == (unsigned)r) ? a07 : cap;
    }
  }

  const size_t ob = (size_t)t0 * 8;
  {
    float gl = g0[0], il = inv[0];
#pragma unroll
    for (int r = 1; r < R; ++r) {
      if (rl == (unsigned)r) {
        gl = g0[r];
        il = inv[r];
      }
    }
    if (SUM == 2) gl = 0x1.3FFFFEp+0f;
    const float ee = ex2f((key_g(cap) - gl) * (46.16624130844683f * (KSCALE / 32.0f)));
    if (STORE == 0) {
      if (lane < 8u * (unsigned)R && (R == 1 || t0 + (int)rl < T)) {
        w[ob + lane] = ee * il;
        idx[ob + lane] = (int)(~cap & 255u);
      }
    } else {
      const bool isw = lane < 8u * (unsigned)R;
      unsigned* dst = isw ? reinterpret_cast<unsigned*>(w) : reinterpret_cast<unsigned*>(idx);
      const unsigned val = isw ? __float_as_uint(ee * il) : (~cap & 255u);
      if (lane < 16u * (unsigned)R && (R == 1 || t0 + (int)rl < T)) dst[ob + slot] = val;
    }
  }

  unsigned nxt = 0u;
  bool bad;
  if (CHECK == 0) {
    nxt = __shfl_down_sync(FULL, cap, 1);
    const bool pair = (R == 1) ? (lane < 7u) : (lane < 8u * (unsigned)R && (lane & 7u) != 7u);
    bad = xbad || ((cap - 256u) >= 0xFFFFFD00u) || (pair && (cap ^ nxt) < 256u);
  } else {
    bad = xbad || same;
#pragma unroll
    for (int r = 0; r < R; ++r) bad = bad || (M0[r] >= 0xFFFFFE00u) || (M[r] < 256u);
  }
  if (__builtin_expect(!__any_sync(FULL, bad), 1)) return;

  // ---------------- rare ----------------
  if (R == 1) {
    if (CHECK != 0) nxt = __shfl_down_sync(FULL, cap, 1);
    redo_row<V>(v[0], logits + (size_t)t0 * 256, lane, c0, c1, M0[0], M[0], cap, nxt, exhausted[0], mref[0], inv[0], ob,
                w, idx);
  } else {
    // one copy of the code for all rows of the warp; a row that was right stays right
#pragma unroll 1
    for (int r = 0; r < R; ++r) {
      if (t0 + r >= T) break;
      const float* rp = logits + (size_t)(t0 + r) * 256;
      float vr[8];
      load_row<V>(rp, lane, vr);
      unsigned m0 = M0[0], m7 = M[0];
      float mr = mref[0], iv = inv[0];
      bool ex = exhausted[0];
#pragma unroll
      for (int u = 1; u < R; ++u) {
        if (r == u) {
          m0 = M0[u];
          m7 = M[u];
          mr = mref[u];
          iv = inv[u];
          ex = exhausted[u];
        }
      }
      const unsigned cr = __shfl_sync(FULL, cap, 8 * r + (int)(lane & 7u));
      const unsigned nr = __shfl_down_sync(FULL, cr, 1);
      redo_row<V>(vr, rp, lane, c0, c1, m0, m7, cr, nr, ex, mr, iv, ob + (size_t)r * 8, w, idx);
    }
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, MINB)
topk_softmax(const float* __restrict__ logits, float* __restrict__ w, int* __restrict__ idx, int T) {
#if ROWS == 1 && SEL_S == SELECT && VEC_S == VEC
  run_rows<ROWS, SELECT, VEC>(logits, w, idx, T);
#else
  if (T >= 1024) {
    run_rows<ROWS, SELECT, VEC>(logits, w, idx, T);
  } else {
    run_rows<1, SEL_S, VEC_S>(logits, w, idx, T);
  }
#endif
}
