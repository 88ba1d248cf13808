/* tunesmith 1
entry = "matmul"
grid  = ["1"]
block = ["1"]
args  = ["A", "B", "C", "M"]
[fixed]
N = 768
K = 768
*/
// One work-item does the whole product: 12/13 x 32 register tiles (24/26 float16 accumulators, full K),
// B panels of 32 columns packed (fused into the first row tile) into a 96 KiB private buffer,
// A blocked by at most 192 rows (L2), next B panel / next A tile prefetched to L2 while computing.
#pragma OPENCL FP_CONTRACT ON

#define LD 768
#define PF_L2(p) __builtin_prefetch((const void*)(size_t)(p), 0, 2)
#define PF_L1(p) __builtin_prefetch((const void*)(size_t)(p), 0, 3)

static inline __attribute__((always_inline)) float16 madd(float16 a, float16 b, float16 c) {
#pragma OPENCL FP_CONTRACT ON
  return a * b + c;
}

#define ROWS1(X)  X(0)
#define ROWS4(X)  X(0) X(1) X(2) X(3)
#define ROWS12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define ROWS13(X) ROWS12(X) X(12)

#define DECL(i) float16 p##i = (float16)(0.0f); float16 q##i = (float16)(0.0f);
#define STEP(i) { const float16 av = (float16)(ak[(i) * LD]); \
                  p##i = madd(av, b0, p##i); q##i = madd(av, b1, q##i); }
#define STOR(i) *(__global float16*)(c + (i) * LD) = p##i; \
                *(__global float16*)(c + (i) * LD + 16) = q##i;

// B straight from its matrix, copied to the packed panel on the way
#define KS_PACK(ROWS, kk) { \
    const __global float* ak = a + (kk); \
    const __global float* bk = bg + (kk) * LD; \
    PF_L1(bk + 16 * LD); PF_L1(bk + 16 * LD + 16); \
    const float16 b0 = *(const __global float16*)(bk); \
    const float16 b1 = *(const __global float16*)(bk + 16); \
    pk[2 * (kk)] = b0; pk[2 * (kk) + 1] = b1; \
    ROWS(STEP) }

// B from the packed panel
#define KS_USE(ROWS, kk) { \
    const __global float* ak = a + (kk); \
    PF_L1(pk + 2 * (kk) + 32); PF_L1(pk + 2 * (kk) + 33); \
    const float16 b0 = pk[2 * (kk)]; \
    const float16 b1 = pk[2 * (kk) + 1]; \
    ROWS(STEP) }

#define MICRO(NAME, ROWS, KS) \
static inline __attribute__((always_inline)) void NAME( \
    const __global float* a, const __global float* bg, float16* pk, __global float* c, \
    const __global float* pb, const long sb, const __global float* pa, const long sa) { \
  const __global float* a0 = a; \
  ROWS(DECL) \
  _Pragma("nounroll") \
  for (int k = 0; k < 768; k += 4) { \
    const __global float* an = a0 + ((k & ~15) + 16 + (k & 12) * 576); \
    PF_L1(an); PF_L1(an + LD); PF_L1(an + 2 * LD); \
    PF_L2(pb); PF_L2(pb + 16); \
    PF_L2(pa); PF_L2(pa + 16); PF_L2(pa + 32); \
    pb += sb; pa += sa; \
    KS(ROWS, 0) KS(ROWS, 1) KS(ROWS, 2) KS(ROWS, 3) \
    a += 4; bg += 4 * LD; pk += 8; \
  } \
  ROWS(STOR) \
}

MICRO(mk_pack13, ROWS13, KS_PACK)
MICRO(mk_pack12, ROWS12, KS_PACK)
MICRO(mk_use13, ROWS13, KS_USE)
MICRO(mk_use12, ROWS12, KS_USE)
MICRO(mk_pack4, ROWS4, KS_PACK)
MICRO(mk_pack1, ROWS1, KS_PACK)

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void matmul(__global const float* A, __global const float* B, __global float* C, int M) {
  float16 pk[2 * 768];

  if (M < 12) {
    for (int p = 0; p < 24; ++p) {
      const __global float* bp = B + p * 32;
      __global float* cp = C + p * 32;
      int m = 0;
      for (; m + 4 <= M; m += 4)
        mk_pack4(A + m * LD, bp, pk, cp + m * LD, A, 0, A, 0);
      for (; m < M; ++m)
        mk_pack1(A + m * LD, bp, pk, cp + m * LD, A, 0, A, 0);
    }
    return;
  }

  const int nb = (M - 1) / 192 + 1;
  for (int b = 0; b < nb; ++b) {
    const int r0 = (int)((long)b * M / nb);
    const int R = (int)((long)(b + 1) * M / nb) - r0;

    // tiles of 12 and 13 rows; where that cannot work, tiles of 12 with the last one overlapping
    int nt, n13 = 0;
    if (R % 12 == 0) {
      nt = R / 12;
    } else {
      nt = (R + 12) / 13;
      if (R / nt >= 12) {
        n13 = R % nt;
        if (R / nt == 13) n13 = nt;
      } else {
        nt = (R + 11) / 12;
      }
    }

    for (int p = 0; p < 24; ++p) {
      const __global float* bp = B + p * 32;
      const __global float* bn = B + ((p == 23) ? 0 : (p + 1) * 32);
      for (int t = 0; t < nt; ++t) {
        int m = t * 12 + min(t, n13);
        m = min(m, R - 12);
        const __global float* at = A + (size_t)(r0 + m) * LD;
        __global float* ct = C + (size_t)(r0 + m) * LD + p * 32;

        const __global float* pb = at;
        long sb = 0;
        if (t < 4) { pb = bn + t * 192 * LD; sb = LD; }

        const __global float* pa = at;
        long sa = 0;
        if (p == 0 || (p == 23 && t == nt - 1)) {
          pa = at + ((t < n13) ? 13 : 12) * LD;
          sa = 48;
        }

        if (t == 0) {
          if (n13 > 0) mk_pack13(at, bp, pk, ct, pb, sb, pa, sa);
          else         mk_pack12(at, bp, pk, ct, pb, sb, pa, sa);
        } else {
          if (t < n13) mk_use13(at, bp, pk, ct, pb, sb, pa, sa);
          else         mk_use12(at, bp, pk, ct, pb, sb, pa, sa);
        }
      }
    }
  }
}
