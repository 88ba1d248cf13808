/* tunesmith 1
entry = "calibrate"
grid  = ["blocks"]
block = ["BLOCK"]
args  = ["x", "out", "n", "steps"]
[let]
per_block = "BLOCK*ITEMS"
copying   = "ceil_div(n, per_block) if WAVES == 0 else min(ceil_div(n, per_block), WAVES*sms)"
blocks    = "copying if WHAT == COPY else 1 if WHAT == EMPTY else WAVES*sms"
per_warp  = "64*ITEMS if WHAT == FMA_F32 else 4096*ITEMS if WHAT == MMA_F16 or WHAT == MMA_BF16 else 2*64*256*16 // 4"
flops     = "0 if WHAT == COPY or WHAT == EMPTY else blocks*steps*(BLOCK // 32)*per_warp"
[require]
"a large copy has much in flight" = "WHAT != COPY or ITEMS >= 4 or n < 4194304"
[[start]]
WHAT = "FMA_F32"
BLOCK = 256
ITEMS = 8
WAVES = 8
[[start]]
WHAT = "FMA_F32"
BLOCK = 512
ITEMS = 4
WAVES = 4
[[start]]
WHAT = "MMA_F16"
BLOCK = 256
ITEMS = 8
WAVES = 2
[[start]]
WHAT = "MMA_F16"
BLOCK = 512
ITEMS = 4
WAVES = 2
[[start]]
WHAT = "MMA_BF16"
BLOCK = 256
ITEMS = 8
WAVES = 2
[[start]]
WHAT = "MMA_BF16"
BLOCK = 512
ITEMS = 4
WAVES = 2
[[start]]
WHAT = "WGMMA_F16"
BLOCK = 256
ITEMS = 1
WAVES = 1
[[start]]
WHAT = "WGMMA_BF16"
BLOCK = 256
ITEMS = 1
WAVES = 1
[[start]]
WHAT = "EMPTY"
BLOCK = 128
[[start]]
WHAT = "COPY"
BLOCK = 128
ITEMS = 1
[[start]]
WHAT = "COPY"
BLOCK = 256
ITEMS = 2
[[start]]
WHAT = "COPY"
BLOCK = 256
ITEMS = 4
STREAM = 1
[[start]]
WHAT = "COPY"
BLOCK = 512
ITEMS = 8
STREAM = 1
[[start]]
WHAT = "COPY"
BLOCK = 512
ITEMS = 4
WAVES = 4
*/
// What a device reaches: a copy of n 16-byte vectors, chains of fused multiply-adds in registers and in tensor cores, and
// a kernel that does nothing. `steps` is the length of a chain; ITEMS is how many independent chains a thread has, or how
// many vectors it has in flight. The result of a chain is stored on a condition that never holds and that only runs tell.
#define COPY 0
#define EMPTY 1
#define FMA_F32 2     // 128 per SM and clock on most chips: 67 TFLOP/s on an H200
#define MMA_F16 3     // mma.sync m16n8k16, operands in registers: about two thirds of the peak on Hopper
#define MMA_BF16 4
#define WGMMA_F16 5   // wgmma m64n256k16, operands in shared memory: 4096 flops per SM and clock; only sm_90a has it
#define WGMMA_BF16 6

#define WHAT COPY  // tune: COPY, EMPTY, FMA_F32, MMA_F16, MMA_BF16, WGMMA_F16, WGMMA_BF16
#define BLOCK 256  // tune: 128, 256, 512
#define ITEMS 1    // tune: 1, 2, 4, 8
#define WAVES 0    // tune: 0, 1, 2, 4, 8; blocks per SM, 0 for as many as there is work
#define STREAM 0   // tune: 0, 1; whether a copy's lines are marked as used once

__device__ __forceinline__ float some_float(unsigned bits) { return __uint_as_float(0x3f800000u | (bits & 0x7fffffu)); }

#if WHAT == MMA_F16 || WHAT == WGMMA_F16
#define TYPE "f16"
#define FINITE(v) (((v) & 0x83ff83ffu) | 0x3c003c00u)  // two numbers of 1 to 2 in size, signs and mantissas at random
#else
#define TYPE "bf16"
#define FINITE(v) (((v) & 0x807f807fu) | 0x3f803f80u)
#endif

#if WHAT == MMA_F16 || WHAT == MMA_BF16
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

#if WHAT == WGMMA_F16 || WHAT == WGMMA_BF16
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "wgmma needs sm_90a"
#endif
// A tile whose rows are 64 numbers (128 bytes) in the 128-byte swizzle: 1024 bytes from one group of 8 rows to the next.
__device__ __forceinline__ unsigned long long tile(const void* shared) {
  const unsigned long long at = (unsigned)__cvta_generic_to_shared(shared) & 0x3ffff;
  return at >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
__device__ __forceinline__ void wgmma(float (&d)[128], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,"
      "%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,"
      "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,"
      "%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, %128, %129, 1, 1, 1, 0, 0;"
      : D16(0), D16(16), D16(32), D16(48), D16(64), D16(80), D16(96), D16(112)
      : "l"(a), "l"(b));
}
#endif

extern "C" __global__ void __launch_bounds__(BLOCK) calibrate(const uint4* __restrict__ x, uint4* __restrict__ out, int n, int steps) {
#if WHAT == COPY
  const int width = BLOCK * ITEMS;
  for (int first = blockIdx.x * width + threadIdx.x; first < n; first += gridDim.x * width) {
    uint4 v[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++)
      if (first + k * BLOCK < n) v[k] = STREAM ? __ldcs(x + first + k * BLOCK) : x[first + k * BLOCK];
#pragma unroll
    for (int k = 0; k < ITEMS; k++)
      if (first + k * BLOCK < n) {
        if (STREAM) __stcs(out + first + k * BLOCK, v[k]);
        else out[first + k * BLOCK] = v[k];
      }
  }

#elif WHAT == FMA_F32
  const uint4 v = x[threadIdx.x % n];
  const float m = 0.5f * some_float(v.x) - 0.5f, c = some_float(v.y);
  float a[ITEMS], sum = 0;
#pragma unroll
  for (int k = 0; k < ITEMS; k++) a[k] = some_float(v.z + k);
#pragma unroll 4
  for (int s = 0; s < steps; s++)
#pragma unroll
    for (int k = 0; k < ITEMS; k++) a[k] = fmaf(a[k], m, c);
#pragma unroll
  for (int k = 0; k < ITEMS; k++) sum += a[k];
  if (sum == -1.0f) out[0].x = 1;

#elif WHAT == MMA_F16 || WHAT == MMA_BF16
  const uint4 v = x[threadIdx.x % n], w = x[(threadIdx.x + 1) % n];
  const unsigned a[4] = {FINITE(v.x), FINITE(v.y), FINITE(v.z), FINITE(v.w)}, b[2] = {FINITE(w.x), FINITE(w.y)};
  float d[ITEMS][4] = {}, sum = 0;
#pragma unroll 4
  for (int s = 0; s < steps; s++)
#pragma unroll
    for (int k = 0; k < ITEMS; k++) mma(d[k], a, b);
#pragma unroll
  for (int k = 0; k < ITEMS; k++) sum += d[k][0] + d[k][1] + d[k][2] + d[k][3];
  if (__float_as_uint(sum) == 0xffedcba9u) out[0].x = 1;

#elif WHAT == WGMMA_F16 || WHAT == WGMMA_BF16
  // 64 rows of A and 256 of B, 64 numbers each; one wgmma takes 16 of them. Both warpgroups read the same tiles, 10 KB per
  // 128 clocks each, which is below what shared memory gives. A step is one wgmma; `steps` is a multiple of 16.
  __shared__ __align__(1024) uint4 tiles[(64 + 256) * 8];
  for (int i = threadIdx.x; i < (64 + 256) * 8; i += BLOCK) {
    const uint4 v = x[i % n];
    tiles[i] = make_uint4(FINITE(v.x), FINITE(v.y), FINITE(v.z), FINITE(v.w));
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const unsigned long long a = tile(tiles), b = tile(tiles + 64 * 8);
  float d[128] = {}, sum = 0;
  for (int s = 0; s < steps; s += 16) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 16; k++) wgmma(d, a + 2 * (k % 4), b + 2 * (k % 4));  // 32 bytes further along K
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
#pragma unroll
  for (int k = 0; k < 128; k++) sum += d[k];
  if (__float_as_uint(sum) == 0xffedcba9u) out[0].x = 1;
#endif
}
