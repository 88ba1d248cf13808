/* tunesmith 1
entry = "silu_and_mul"
grid  = ["ceil_div(items, LOCAL)"]
block = ["LOCAL"]
args  = ["x", "out", "T"]
[let]
vectors = "T*(d // VEC)"
items   = "ceil_div(vectors, ITEMS)"           # work-items
[require]
"a row holds whole vectors" = "d % VEC == 0"
"a store past the cache is aligned" = "NT == 0 or aligned(out, VEC*sizeof(io))"
"vectors are counted in 31 bits" = "vectors + LOCAL*ITEMS < 2147483648"
[[start]]
VEC = 16
EXP = 2
[[start]]
VEC = 16
ITEMS = 8
EXP = 2
RECIP = 1
LOCAL = 4
[[start]]
VEC = 4
NT = 1
EXP = 2
ITEMS = 16
*/
// Each work-item takes ITEMS vectors of the flattened output.
// Bound: 12 bytes per element in f32, 16 where the cache reads a line of `out` before it is written (NT avoids that).
#pragma OPENCL FP_CONTRACT ON
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#define IO float     // type: io
#define DIM_D 14336  // dim: d
#define LOCAL 16  // tune: 1, 4, 16, 64, 256; work-items per group
#define VEC 4     // tune: 2, 4, 8, 16; elements per access
#define ITEMS 1   // tune: 1, 2, 4, 8, 16, 32; vectors per work-item
#define STRIDED 0 // tune: 0, 1; when ITEMS > 1; 0 a work-item's vectors are neighbours, 1 those of a group's work-items are
#define EXP 0     // tune: 0, 1, 2; 0 exp, 1 native_exp, 2 a polynomial of degree 6
#define RECIP 0   // tune: 0, 1; 0 division, 1 native_recip
#define NT 0      // tune: 0, 1; stores past the cache

#define PASTE(a, b) a##b
#define NAME(a, b) PASTE(a, b)
typedef NAME(IO, VEC) io_v;
typedef NAME(float, VEC) f_v;
#define TO_FLOAT NAME(convert_float, VEC)
#define LOAD NAME(vload, VEC)
#define STORE NAME(vstore, VEC)

f_v e_to_the(f_v z) {
#if EXP == 0
  return exp(z);
#elif EXP == 1
  return native_exp(z);
#else  // e^z = 2^n 2^t with n = round(z / ln 2): adding 1.5 * 2^23 leaves n in the low bits
  z = clamp(z, (f_v)(-87.0f), (f_v)(87.0f));
  const f_v n = z * 1.44269504f + 12582912.0f;
  const f_v t = z * 1.44269504f - (n - 12582912.0f);  // contracted: one rounding
  f_v p = t * 1.534581243e-4f + 1.339993090e-3f;
  p = p * t + 9.618489072e-3f;
  p = p * t + 5.550328642e-2f;
  p = p * t + 2.402264625e-1f;
  p = p * t + 6.931471825e-1f;
  p = p * t + 1.0f;
  return NAME(as_float, VEC)(NAME(as_int, VEC)(p) + (NAME(as_int, VEC)(n) << 23));
#endif
}

__kernel void silu_and_mul(__global const IO* x, __global IO* out, int T) {
  const uint per_row = DIM_D / VEC, vectors = T * per_row;
  const uint me = get_global_id(0), group = get_group_id(0), local_id = get_local_id(0);
  for (uint k = 0; k < ITEMS; ++k) {
    const uint i = STRIDED ? (group * ITEMS + k) * LOCAL + local_id : me * ITEMS + k;
    if (i >= vectors) break;
    const size_t from = (size_t)(i / per_row) * per_row + i;  // row * 2 per_row + column
    const f_v gate = TO_FLOAT(LOAD(from, x)), up = TO_FLOAT(LOAD(from + per_row, x));
    const f_v under = 1.0f + e_to_the(-gate);
#if RECIP
    const f_v y = gate * native_recip(under) * up;
#else
    const f_v y = gate / under * up;
#endif
#if NT
    __builtin_nontemporal_store(NAME(NAME(convert_, IO), VEC)(y), (__global io_v*)out + i);
#else
    STORE(NAME(NAME(convert_, IO), VEC)(y), i, out);
#endif
  }
}
