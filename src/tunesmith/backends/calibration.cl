/* tunesmith 1
entry = "calibrate"
grid  = ["groups"]
block = ["BLOCK"]
args  = ["x", "out", "n", "steps"]
[let]
copying = "ceil_div(n, 4*BLOCK*ITEMS)"
groups  = "copying if WHAT == COPY else 1 if WHAT == EMPTY else 4*sms"
flops   = "groups*BLOCK*steps*ITEMS*32 if WHAT == FMA_F32 else 0"
[require]
"whole vectors of 64 bytes"            = "n % 4 == 0"
"a chain stays in registers"           = "WHAT != FMA_F32 or ITEMS <= 12"
"a small copy is tried in one shape"   = "WHAT != COPY or ITEMS == 64 or n >= 16384"
[[start]]
WHAT = "FMA_F32"
ITEMS = 8
[[start]]
WHAT = "FMA_F32"
ITEMS = 12
[[start]]
WHAT = "EMPTY"
[[start]]
WHAT = "COPY"
ITEMS = 64
[[start]]
WHAT = "COPY"
ITEMS = 1024
STREAM = 1
[[start]]
WHAT = "COPY"
ITEMS = 16384
STREAM = 1
*/
// What a CPU reaches: a copy of n 16-byte vectors, 64 bytes at a time, chains of fused multiply-adds, and a kernel that does
// nothing. One work-item per group, so that a group is one plain loop of one thread; `steps` is the length of a chain; ITEMS
// is how many independent chains a thread has (two units with a latency of 4 want 8), or how many vectors a group copies.
#define COPY 0
#define EMPTY 1
#define FMA_F32 2

#define WHAT COPY  // tune: COPY, EMPTY, FMA_F32
#define BLOCK 1    // tune: 1, 64, 256
#define ITEMS 64   // tune: 8, 12, 64, 1024, 16384
#define STREAM 0   // tune: 0, 1; whether a copy's stores go past the caches

__kernel void calibrate(__global const float16* restrict x, __global float16* restrict out, int n, int steps) {
#if WHAT == COPY
  const int width = BLOCK * ITEMS, first = get_group_id(0) * width;
  const int end = min(first + width, n / 4);
  for (int i = first + (int)get_local_id(0); i < end; i += BLOCK) {
#if STREAM
    __builtin_nontemporal_store(x[i], out + i);
#else
    out[i] = x[i];
#endif
  }

#elif WHAT == FMA_F32
  const float16 m = (float16)(0.5f / (float)steps), c = (float16)(1.0f + (float)get_local_id(0));
  float16 a[ITEMS];
  __attribute__((opencl_unroll_hint(ITEMS)))
  for (int k = 0; k < ITEMS; k++) a[k] = c + (float16)((float)k);
  for (int s = 0; s < steps; s++) {
    __attribute__((opencl_unroll_hint(ITEMS)))
    for (int k = 0; k < ITEMS; k++) a[k] = fma(a[k], m, c);
  }
  float16 sum = a[0];
  __attribute__((opencl_unroll_hint(ITEMS)))
  for (int k = 1; k < ITEMS; k++) sum += a[k];
  if (sum.s0 + sum.s7 + sum.sf == -1.0f) out[0] = sum;
#endif
}
