/* tunesmith 1
entry = "row_softmax"
grid  = ["min(T, GROUPS)"]                     # work-groups; each takes a contiguous run of rows
block = ["1"]
args  = ["x", "y", "T"]
[fixed]
V = 4096
io = "f32"
[require]
"the exponential pass covers a row in whole unrolled steps" = "V % (VW*UNROLL) == 0"
"the scaling pass covers a row in whole unrolled steps" = "V % (VW*SUNROLL) == 0"
[[start]]
GROUPS  = 256
PF_NEXT = 0
PF_DIST = 16
[[start]]
STAGE   = 1
NT      = 1
PF_NEXT = 1
[[start]]
STAGE   = 2
NT      = 0
UNROLL  = 2
PF_NEXT = 0
[[start]]
SEED    = 0
PF_NEXT = 0
PF_DIST = 16
GROUPS  = 256
*/
#define GROUPS   128  // tune: 64, 128, 256; most work-groups launched (rows are divided evenly among them)
#define VW       16   // tune: 8, 16; floats per vector (AVX / AVX-512)
#define UNROLL   4    // tune: 1, 2, 4, 8; vectors (and partial sums) per step of the exponential pass
#define SUNROLL  4    // tune: 1, 2, 4, 8; vectors per step of the scaling pass
#define SEED     2    // tune: 0, 1, 2; reference point: 0 = true row maximum (extra pass), 1 = first element, 2 = maximum of the first vector (1 and 2: redone with the true maximum if the sum grows too large)
#define EXP_IMPL 1    // tune: 0, 1; 0 = portable integer exponent, 1 = vreduceps + vscalefps where the target has them
#define DEG      4    // tune: 4, 5; degree of the polynomial for 2^f
#define STAGE    0    // tune: 0, 1, 2; where exponentials wait for the sum: 0 = in y, 1 = private buffer, 2 = recomputed
#define NT       0    // tune: 0, 1; when STAGE != 0; non-temporal stores of y
#define PF_NEXT  2    // tune: 0, 1, 2; during the scaling pass prefetch the next row: 0 = no, 1 = to L2, 2 = to L1
#define PF_DIST  0    // tune: 0, 8, 16, 32, 64; prefetch distance, in 64-byte lines, in the first pass over a row (0 = none)

#pragma OPENCL FP_CONTRACT ON

#define COLS 4096
#define NV   (COLS / VW)
#define LPV  (16 / VW)          /* vectors per 64-byte line */
#define LOG2E 1.44269504088896341f
#define SUM_LIMIT 1.0e18f       /* about 2^60 */

#define VMAX(a, b) ((a) > (b) ? (a) : (b))
#define VMIN(a, b) ((a) < (b) ? (a) : (b))
#define INLINE static inline __attribute__((always_inline))

#if VW == 16
typedef float16 vf;
typedef int16 vi;
#define AS_VF as_float16
#define AS_VI as_int16
#else
typedef float8 vf;
typedef int8 vi;
#define AS_VF as_float8
#define AS_VI as_int8
#endif

#if EXP_IMPL == 1 && VW == 16 && defined(__AVX512F__) && defined(__AVX512DQ__)
#define HW_EXP 1
#define REDUCE(t)    __builtin_ia32_reduceps512_mask((t), 0x09, (vf)(0.0f), (ushort)0xffff, 4)
#define SCALEF(p, t) __builtin_ia32_scalefps512_mask((p), (t), (vf)(0.0f), (ushort)0xffff, 4)
#elif EXP_IMPL == 1 && VW == 8 && defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HW_EXP 1
#define REDUCE(t)    __builtin_ia32_reduceps256_mask((t), 0x09, (vf)(0.0f), (uchar)0xff)
#define SCALEF(p, t) __builtin_ia32_scalefps256_mask((p), (t), (vf)(0.0f), (uchar)0xff)
#else
#define HW_EXP 0
#endif


/* 2^t up to a common constant factor (which a softmax cancels) */
INLINE vf exp2v(vf t) {
#if HW_EXP
  /* f = t - floor(t) in [0, 1]; vscalefps multiplies by 2^floor(t) */
  vf f = REDUCE(t);
#if DEG == 4
  vf p = f * 1.3534167e-2f + 5.2011464e-2f;
  p = p * f + 2.4144275e-1f;
  p = p * f + 6.9300383e-1f;
  p = p * f + 1.0000026f;
#else
  vf p = f * 1.8775767e-3f + 8.9893397e-3f;
  p = p * f + 5.5826318e-2f;
  p = p * f + 2.4015361e-1f;
  p = p * f + 6.9315308e-1f;
  p = p * f + 9.9999994e-1f;
#endif
  vf w = SCALEF(p, t);
  return w;
#else
  const vf lo = (vf)(-126.0f), hi = (vf)(127.0f);
  t = VMAX(t, lo);
  t = VMIN(t, hi);
  const vf z = t + 12582912.0f;             /* 1.5 * 2^23: the low bits are round(t) */
  const vf f = t - (z - 12582912.0f);       /* in [-0.5, 0.5] */
  /* the same polynomials, shifted by a half: sqrt(2) * 2^f */
#if DEG == 4
  vf p = f * 1.3534167e-2f + 7.9079798e-2f;
  p = p * f + 3.3976120e-1f;
  p = p * f + 9.8022226e-1f;
  p = p * f + 1.41421252f;
#else
  vf p = f * 1.8775767e-3f + 1.36832815e-2f;
  p = p * f + 7.84989392e-2f;
  p = p * f + 3.39724067e-1f;
  p = p * f + 9.80257841e-1f;
  p = p * f + 1.41421368f;
#endif
  return AS_VF(AS_VI(p) + (AS_VI(z) << 23));
#endif
}

INLINE float hmax(vf v) {
#if VW == 16
  float8 a = VMAX(v.lo, v.hi);
#else
  float8 a = v;
#endif
  float4 b = VMAX(a.lo, a.hi);
  float2 c = VMAX(b.lo, b.hi);
  return VMAX(c.x, c.y);
}

INLINE float hsum(vf v) {
#if VW == 16
  float8 a = v.lo + v.hi;
#else
  float8 a = v;
#endif
  float4 b = a.lo + a.hi;
  float2 c = b.lo + b.hi;
  return c.x + c.y;
}

INLINE float row_max(__global const vf* r) {
  vf m0 = r[0], m1 = r[1], m2 = r[2], m3 = r[3];
  for (int j = 4; j < NV; j += 4) {
#if SEED == 0 && PF_DIST > 0
#pragma unroll
    for (int u = 0; u < 4; u += LPV)
      __builtin_prefetch(r + j + u + PF_DIST * LPV, 0, 3);
#endif
    const vf a = r[j], b = r[j + 1], c = r[j + 2], d = r[j + 3];
    m0 = VMAX(a, m0);
    m1 = VMAX(b, m1);
    m2 = VMAX(c, m2);
    m3 = VMAX(d, m3);
  }
  m0 = VMAX(m0, m1);
  m2 = VMAX(m2, m3);
  m0 = VMAX(m0, m2);
  return hmax(m0);
}

#if STAGE == 1
#define EPTR __private vf*
#else
#define EPTR __global vf*
#endif

/* exponentials relative to the reference c, and their sum */
INLINE float exp_pass(__global const vf* r, EPTR e, const float c) {
  const float nb = -c * LOG2E;
  const vf nbv = (vf)(nb);
  vf acc[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) acc[u] = (vf)(0.0f);
  for (int j = 0; j < NV; j += UNROLL) {
    vf v[UNROLL];
#if SEED != 0 && PF_DIST > 0
#pragma unroll
    for (int u = 0; u < UNROLL; u += LPV)
      __builtin_prefetch(r + j + u + PF_DIST * LPV, 0, 3);
#endif
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) v[u] = r[j + u];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const vf w = exp2v(v[u] * LOG2E + nbv);
      acc[u] += w;
#if STAGE != 2
      e[j + u] = w;
#endif
    }
  }
#pragma unroll
  for (int u = 1; u < UNROLL; ++u) acc[0] += acc[u];
  return hsum(acc[0]);
}

__kernel
#if VW == 16
__attribute__((min_vector_width(512)))
#endif
__attribute__((reqd_work_group_size(1, 1, 1)))
void row_softmax(__global const float* x, __global float* y, int T) {
  const ulong g = get_group_id(0), ng = get_num_groups(0);
  const int t0 = (int)(((ulong)T * g) / ng);
  const int t1 = (int)(((ulong)T * (g + 1)) / ng);
#if STAGE == 1
  vf buf[NV];
#endif

  for (int t = t0; t < t1; ++t) {
    __global const float* xr = x + (size_t)t * COLS;
    __global const vf* r = (__global const vf*)xr;
    __global vf* o = (__global vf*)(y + (size_t)t * COLS);
#if STAGE == 1
    EPTR e = buf;
#else
    EPTR e = o;
#endif

    /* The reference is an element of the row, so the sum is at least 1. If it
       exceeds the limit, the reference was too low: use the true maximum. */
#if SEED == 0
    float c = row_max(r);
#elif SEED == 1
    float c = xr[0];
#else
    float c = hmax(r[0]);
#endif
    float s = exp_pass(r, e, c);
#if SEED != 0
    if (__builtin_expect(!(s <= SUM_LIMIT), 0)) {
      c = row_max(r);
      s = exp_pass(r, e, c);
    }
#endif

    const float inv = 1.0f / s;
#if STAGE == 2
    const vf nbv = (vf)(-c * LOG2E);
#endif
#if PF_NEXT != 0
    __global const vf* nx = (t + 1 < T) ? r + NV : r;
#endif
    for (int j = 0; j < NV; j += SUNROLL) {
      vf v[SUNROLL];
#if PF_NEXT != 0
#pragma unroll
      for (int u = 0; u < SUNROLL; u += LPV)
        __builtin_prefetch(nx + j + u, 0, PF_NEXT == 2 ? 3 : 2);
#endif
#pragma unroll
      for (int u = 0; u < SUNROLL; ++u) {
#if STAGE == 2
        v[u] = r[j + u];
#else
        v[u] = e[j + u];
#endif
      }
#pragma unroll
      for (int u = 0; u < SUNROLL; ++u) {
#if STAGE == 2
        const vf w = exp2v(v[u] * LOG2E + nbv) * inv;
#else
        const vf w = v[u] * inv;
#endif
#if STAGE != 0 && NT
        __builtin_nontemporal_store(w, o + j + u);
#else
        o[j + u] = w;
#endif
      }
    }
  }
}
