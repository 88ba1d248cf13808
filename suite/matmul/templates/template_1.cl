/* tunesmith 1
entry = "matmul"
grid  = ["N // NG", "ceil_div(M, MB)"]
block = ["1", "1"]
args  = ["A", "B", "C", "M"]
[fixed]
N = 768
K = 768
[require]
"accumulators, one row of B and one broadcast stay in 32 vector registers" = "MR*NV + NV + 1 <= 32"
"at least 10 independent accumulators" = "MR*NV >= 10"
"a work-group holds whole column panels" = "NG % (16*NV) == 0"
"the K blocks tile K" = "K % KC == 0"
"the unrolled loop tiles a K block" = "KC % UK == 0"
"the prefetch does not run past the next panel" = "PFB <= UK"
"the packed panel stays well below L2" = "KC*NV*64 <= 262144"
[[start]]
MR = 13
NV = 2
KC = 256
UK = 2
[[start]]
MR = 8
NV = 3
KC = 192
UK = 4
[[start]]
MR = 5
NV = 4
KC = 128
UK = 4
[[start]]
MR = 10
NV = 2
KC = 384
UK = 4
KIN = 1024
*/
// One work-item per work-group, GotoBLAS style: a KC x NR panel of B is packed (L1 resident) while the
// first strip of rows is computed, and is then reused by every other strip of MR rows; the MR x NR tile of C
// lives in vector registers. The next panel of B is prefetched into L2 during the strips of this one.
#pragma OPENCL FP_CONTRACT ON

#define MR   10     // tune: 5, 6, 8, 9, 10, 12, 13, 14; rows of the register tile
#define NV   2      // tune: 2, 3, 4; float16 vectors per row of the register tile
#define KC   256    // tune: 96, 128, 192, 256, 384, 768; depth of a packed panel of B
#define UK   4      // tune: 1, 2, 4, 8; unrolling over k
#define NG   768    // tune: 192, 384, 768; columns per work-group
#define MB   768    // tune: 192, 384, 768, 1536; rows per work-group
#define FUSE 1      // tune: 0, 1; 1: pack B while computing the first strip, 0: in a loop of its own
#define PFB  1      // tune: 0, 1, 2; rows of the next B panel prefetched per unrolled step
#define PFL  2      // tune: 2, 3; when PFB > 0; where to: 2 = L2, 3 = L1
#define PFC  1      // tune: 0, 1; prefetch the tile of C before the k loop
#define KIN  128    // tune: 0, 128, 1024; at most this many rows: K blocks innermost, else column panels

#define LDN 768
#define LDK 768
#define NR  (16 * NV)
#define NP  (NG / NR)
#define NK  (768 / KC)

#if NV == 2
#define COLS(X, i) X(i, 0) X(i, 1)
#elif NV == 3
#define COLS(X, i) X(i, 0) X(i, 1) X(i, 2)
#else
#define COLS(X, i) X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#endif

#define ROWS5(X) X(0) X(1) X(2) X(3) X(4)
#if MR == 5
#define ROWS(X) ROWS5(X)
#elif MR == 6
#define ROWS(X) ROWS5(X) X(5)
#elif MR == 8
#define ROWS(X) ROWS5(X) X(5) X(6) X(7)
#elif MR == 9
#define ROWS(X) ROWS5(X) X(5) X(6) X(7) X(8)
#elif MR == 10
#define ROWS(X) ROWS5(X) X(5) X(6) X(7) X(8) X(9)
#elif MR == 12
#define ROWS(X) ROWS5(X) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#elif MR == 13
#define ROWS(X) ROWS5(X) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#define ROWS(X) ROWS5(X) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#endif

#if UK == 1
#define STEPS(S) S(0)
#elif UK == 2
#define STEPS(S) S(0) S(1)
#elif UK == 4
#define STEPS(S) S(0) S(1) S(2) S(3)
#else
#define STEPS(S) S(0) S(1) S(2) S(3) S(4) S(5) S(6) S(7)
#endif

typedef __global float16* gvp;
typedef __global const float16* gcvp;

// accumulators
#define DECL_C(i, j) float16 c##i##_##j = (float16)(0.0f);
#define DECL_R(i) COLS(DECL_C, i)

// one k: load a row of B, then a broadcast of A and NV fused multiply-adds per row
#define FMA_C(i, j) c##i##_##j = a * b##j + c##i##_##j;
#define FMA_R(i) { const float16 a = (float16)(pk[i * LDK]); COLS(FMA_C, i) }
#define LDP_C(ko, j) const float16 b##j = pb[(ko) * NV + j];
#define LDG_C(ko, j) const float16 b##j = *(gcvp)(pg + (ko) * LDN + 16 * j); pb[(ko) * NV + j] = b##j;
#define STEP_P(ko) { COLS(LDP_C, ko) __global const float* pk = pa + (ko); ROWS(FMA_R) }
#define STEP_G(ko) { COLS(LDG_C, ko) __global const float* pk = pa + (ko); ROWS(FMA_R) }

// stores
#define ST0_C(i, j) *(gvp)(pc + i * LDN + 16 * j) = c##i##_##j;
#define ST1_C(i, j) *(gvp)(pc + i * LDN + 16 * j) += c##i##_##j;
#define ST0_R(i) COLS(ST0_C, i)
#define ST1_R(i) COLS(ST1_C, i)
#define ST0_G(i) if (i >= lo) { COLS(ST0_C, i) }
#define ST1_G(i) if (i >= lo) { COLS(ST1_C, i) }
#define STORE_TILE \
  if (lo == 0) { if (first) { ROWS(ST0_R) } else { ROWS(ST1_R) } } \
  else         { if (first) { ROWS(ST0_G) } else { ROWS(ST1_G) } }

// prefetches
#if PFC
#define PFC_C(i, j) __builtin_prefetch(pc + i * LDN + 16 * j, 1, 3);
#define PFC_R(i) COLS(PFC_C, i)
#define PREFETCH_C ROWS(PFC_R)
#else
#define PREFETCH_C
#endif
#if PFB
#define PFB_C(i, j) __builtin_prefetch(pf + i * LDN + 16 * j, 0, PFL);
#if PFB == 1
#define PREFETCH_B COLS(PFB_C, 0) pf += pfs;
#else
#define PREFETCH_B COLS(PFB_C, 0) COLS(PFB_C, 1) pf += pfs;
#endif
#else
#define PREFETCH_B
#endif

#define INL static inline __attribute__((always_inline)) __attribute__((min_vector_width(512)))

// tile of MR rows from the packed panel
INL void micro_packed(__global const float* pa, const float16* pb, __global float* pc,
                      __global const float* pf, const int pfs, const int first, const int lo) {
  PREFETCH_C
  ROWS(DECL_R)
  for (int k = 0; k < KC; k += UK) {
    PREFETCH_B
    STEPS(STEP_P)
    pa += UK;
    pb += UK * NV;
  }
  STORE_TILE
}

#if FUSE
// the same, from B itself; leaves the packed panel behind
INL void micro_pack(__global const float* pa, __global const float* pg, float16* pb, __global float* pc,
                    __global const float* pf, const int pfs, const int first, const int lo) {
  PREFETCH_C
  ROWS(DECL_R)
  for (int k = 0; k < KC; k += UK) {
    PREFETCH_B
    STEPS(STEP_G)
    pa += UK;
    pg += UK * LDN;
    pb += UK * NV;
  }
  STORE_TILE
}
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) __attribute__((min_vector_width(512)))
void matmul(__global const float* A, __global const float* B, __global float* C, int M) {
  const int n0 = (int)get_group_id(0) * NG;
  const int m0 = (int)get_group_id(1) * MB;
  const int m1 = min(m0 + MB, M);

  if (M < MR) {  // too few rows for a tile: one row at a time, straight from B
    for (int m = m0; m < m1; ++m) {
      for (int p = 0; p < NP; ++p) {
        const int n = n0 + p * NR;
        __global const float* pk = A + m * LDK;
        __global const float* pg = B + n;
        __global float* pc = C + m * LDN + n;
        DECL_R(0)
        for (int k = 0; k < 768; ++k) {
          const float16 a = (float16)(pk[k]);
#define SMALL_C(i, j) c0_##j = a * *(gcvp)(pg + 16 * j) + c0_##j;
          COLS(SMALL_C, 0)
          pg += LDN;
        }
        ST0_R(0)
      }
    }
    return;
  }

  float16 Bp[KC * NV];
  const int kin = (m1 - m0) <= KIN;

  for (int t = 0; t < NP * NK; ++t) {
    const int kb = kin ? t % NK : t / NP;
    const int p  = kin ? t / NK : t % NP;
    const int k0 = kb * KC;
    const int n  = n0 + p * NR;
    __global const float* pg = B + k0 * LDN + n;
    const int first = (kb == 0);

    const int t2  = t + 1;
    const int kb2 = kin ? t2 % NK : t2 / NP;
    const int p2  = kin ? t2 / NK : t2 % NP;
    __global const float* nextB = B + kb2 * KC * LDN + (n0 + p2 * NR);
    const int more = t2 < NP * NK;

#if !FUSE
    for (int k = 0; k < KC; ++k) {
#define PACK_C(i, j) Bp[k * NV + j] = *(gcvp)(pg + k * LDN + 16 * j);
      COLS(PACK_C, 0)
    }
#endif

    int row2 = 0;  // rows of the next panel prefetched so far
    for (int m = m0; m < m1; m += MR) {
      const int ms = min(m, m1 - MR);  // the last tile overlaps the one before and stores its own rows only
      const int lo = m - ms;
      __global const float* pa = A + ms * LDK + k0;
      __global float* pc = C + ms * LDN + n;
      __global const float* pf = pa;
      int pfs = 0;
#if PFB
      if (more && row2 < KC) {
        pf = nextB + row2 * LDN;
        pfs = PFB * LDN;
        row2 += (KC / UK) * PFB;
      }
#endif
#if FUSE
      if (m == m0) micro_pack(pa, pg, Bp, pc, pf, pfs, first, lo);
      else
#endif
        micro_packed(pa, Bp, pc, pf, pfs, first, lo);
    }
  }
}
