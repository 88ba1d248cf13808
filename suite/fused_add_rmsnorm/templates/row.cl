/* tunesmith 1
entry = "fused_add_rmsnorm"
grid  = ["ceil_div(T, ROWS)"]
block = ["TEAM", "ROWS"]
args  = ["x", "residual", "w", "eps", "T"]
[require]
"a row holds whole vectors" = "d % VEC == 0"
"a step divides a row" = "d % (VEC*UNROLL*TEAM) == 0 or UNROLL == 1"
"no chain of additions is longer than 256" = "d <= 256*VEC*UNROLL*TEAM"
"a group is not too large" = "TEAM*ROWS <= 256"
[[start]]
VEC = 16
UNROLL = 4
[[start]]
VEC = 16
UNROLL = 2
KEEP = 1
[[start]]
VEC = 4
UNROLL = 1
TEAM = 64
*/
// TEAM work-items share a row, ROWS rows share a group.
// Bound: 16 bytes per element in f32; the sum needs several chains of additions to keep up with memory.
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#define IO float    // type: io
#define DIM_D 8192  // dim: d
#define TEAM 1     // tune: 1, 8, 32, 64, 128; work-items per row
#define ROWS 1     // tune: 1, 2, 4, 8; rows per group
#define VEC 8      // tune: 2, 4, 8, 16; elements per access
#define UNROLL 4   // tune: 1, 2, 4, 8; vectors, and sums, per step
#define KEEP 0     // tune: 0, 1; when TEAM == 1; the row waits in private memory, 0 in residual
#define NATIVE 0   // tune: 0, 1; native_rsqrt

#define PASTE(a, b) a##b
#define NAME(a, b) PASTE(a, b)
typedef NAME(float, VEC) f_v;
#define TO_FLOAT NAME(convert_float, VEC)
#define FROM_FLOAT NAME(NAME(convert_, IO), VEC)
#define LOAD(i, p) TO_FLOAT(NAME(vload, VEC)(i, p))
#define STORE(v, i, p) NAME(vstore, VEC)(FROM_FLOAT(v), i, p)
#define DV (DIM_D / VEC)
#define KEPT (KEEP && TEAM == 1)

__kernel void fused_add_rmsnorm(__global IO* x, __global IO* residual, __global const IO* weight, float eps, int T) {
  const int me = get_local_id(0), row = get_group_id(0) * ROWS + get_local_id(1);
  const int end = row < T ? DV : 0;  // a work-item without a row only keeps the barriers
  x += (size_t)row * DIM_D;
  residual += (size_t)row * DIM_D;
#if KEPT
  f_v kept[DV];
#endif
  f_v sums[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) sums[u] = 0.0f;
  for (int i = me; i < end; i += TEAM * UNROLL) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const f_v r = LOAD(i + u * TEAM, x) + LOAD(i + u * TEAM, residual);
      sums[u] += r * r;
      STORE(r, i + u * TEAM, residual);
#if KEPT
      kept[i + u * TEAM] = r;
#endif
    }
  }
  float lanes[VEC], sum = 0.0f;
#pragma unroll
  for (int u = 1; u < UNROLL; ++u) sums[0] += sums[u];
  NAME(vstore, VEC)(sums[0], 0, lanes);
#pragma unroll
  for (int e = 0; e < VEC; ++e) sum += lanes[e];
#if TEAM > 1
  __local float part[ROWS][TEAM];
  const int y = get_local_id(1);
  part[y][me] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = TEAM / 2; step > 0; step /= 2) {
    if (me < step) part[y][me] += part[y][me + step];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  sum = part[y][0];
#endif
#if NATIVE
  const float scale = native_rsqrt(sum / DIM_D + eps);
#else
  const float scale = 1.0f / sqrt(sum / DIM_D + eps);
#endif
  for (int i = me; i < end; i += TEAM) {
#if KEPT
    const f_v r = kept[i];
#else
    const f_v r = LOAD(i, residual);
#endif
    STORE(r * scale * LOAD(i, weight), i, x);
  }
}
