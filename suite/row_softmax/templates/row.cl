/* tunesmith 1
entry = "row_softmax"
grid  = ["ceil_div(T, ROWS)"]
block = ["TEAM", "ROWS"]
args  = ["x", "y", "T"]
[require]
"a row holds whole vectors" = "V % VEC == 0"
"a step divides a row" = "V % (VEC*UNROLL*TEAM) == 0 or UNROLL == 1"
"a group is not too large" = "TEAM*ROWS <= 256"
"private memory holds the row" = "STAGE < 2 or V <= 32768"
[[start]]
VEC = 16
EXP = 2
UNROLL = 4
[[start]]
VEC = 16
EXP = 2
UNROLL = 4
STAGE = 1
[[start]]
VEC = 16
EXP = 2
UNROLL = 2
STAGE = 2
[[start]]
TEAM = 64
EXP = 1
*/
// TEAM work-items share a row, ROWS rows share a group; the largest value, then exponentials and their sum, then scaling.
// Bound: 8 bytes per element in f32; exp must be a vector of polynomials, and the sum several chains, to come near it.
#pragma OPENCL FP_CONTRACT ON
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#define IO float    // type: io
#define DIM_V 4096  // dim: V
#define TEAM 1     // tune: 1, 8, 32, 64, 128; work-items per row
#define ROWS 1     // tune: 1, 2, 4, 8; rows per group
#define VEC 4      // tune: 2, 4, 8, 16; elements per access
#define UNROLL 1   // tune: 1, 2, 4, 8; vectors, and chains, per step
#define EXP 0      // tune: 0, 1, 2; 0 exp, 1 native_exp, 2 a polynomial of degree 6
#define STAGE 0    // tune: 0, 1, 2; exponentials are 0 computed twice, 1 left in y, 2 left in private memory
#define DIVIDE 0   // tune: 0, 1; 0 times the reciprocal, 1 a division each

#define PASTE(a, b) a##b
#define NAME(a, b) PASTE(a, b)
typedef NAME(float, VEC) f_v;
#define TO_FLOAT NAME(convert_float, VEC)
#define FROM_FLOAT NAME(NAME(convert_, IO), VEC)
#define LOAD(i, p) TO_FLOAT(NAME(vload, VEC)(i, p))
#define STORE(v, i, p) NAME(vstore, VEC)(FROM_FLOAT(v), i, p)
#define DV (DIM_V / VEC)
#if DIVIDE
#define SCALED(v) ((v) / sum)
#else
#define SCALED(v) ((v) * under)
#endif

f_v e_to_the(f_v z) {
#if EXP == 0
  return exp(z);
#elif EXP == 1
  return native_exp(z);
#else  // e^z = 2^n 2^t with n = round(z / ln 2): adding 1.5 * 2^23 leaves n in the low bits
  z = max(z, (f_v)(-87.0f));
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

// over the team of row `y`; all work-items of the group take part
float join(float v, bool sum, __local float* part, int me) {
#if TEAM > 1
  part[me] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = TEAM / 2; step > 0; step /= 2) {
    if (me < step) part[me] = sum ? part[me] + part[me + step] : fmax(part[me], part[me + step]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  v = part[0];
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  return v;
}

__kernel void row_softmax(__global const IO* x, __global IO* y, int T) {
  __local float parts[ROWS][TEAM];
  __local float* part = parts[get_local_id(1)];
  const int me = get_local_id(0), row = get_group_id(0) * ROWS + get_local_id(1);
  const int end = row < T ? DV : 0;  // a work-item without a row only keeps the barriers
  x += (size_t)row * DIM_V;
  y += (size_t)row * DIM_V;
#if STAGE == 2
  f_v kept[DV / TEAM + 1];
#endif
  f_v chain[UNROLL];
  float lanes[VEC];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) chain[u] = -INFINITY;
  for (int i = me; i < end; i += TEAM * UNROLL) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const f_v v = LOAD(i + u * TEAM, x);
      chain[u] = chain[u] > v ? chain[u] : v;
    }
  }
#pragma unroll
  for (int u = 1; u < UNROLL; ++u) chain[0] = max(chain[0], chain[u]);
  NAME(vstore, VEC)(chain[0], 0, lanes);
  float largest = lanes[0];
#pragma unroll
  for (int e = 1; e < VEC; ++e) largest = max(largest, lanes[e]);
  largest = join(largest, false, part, me);

#pragma unroll
  for (int u = 0; u < UNROLL; ++u) chain[u] = 0.0f;
  for (int i = me; i < end; i += TEAM * UNROLL) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const f_v v = e_to_the(LOAD(i + u * TEAM, x) - largest);
      chain[u] += v;
#if STAGE == 1
      STORE(v, i + u * TEAM, y);
#elif STAGE == 2
      kept[(i - me) / TEAM + u] = v;
#endif
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int u = 1; u < UNROLL; ++u) chain[0] += chain[u];
  NAME(vstore, VEC)(chain[0], 0, lanes);
#pragma unroll
  for (int e = 0; e < VEC; ++e) sum += lanes[e];
  sum = join(sum, true, part, me);

  const float under = 1.0f / sum;
  for (int i = me; i < end; i += TEAM) {
#if STAGE == 0
    const f_v v = e_to_the(LOAD(i, x) - largest);
#elif STAGE == 1
    const f_v v = LOAD(i, y);  // a work-item reads back what it wrote itself
#else
    const f_v v = kept[(i - me) / TEAM];
#endif
    STORE(SCALED(v), i, y);
  }
}
