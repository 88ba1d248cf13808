/* tunesmith 1
[workspace]
partial = "f32[blocks]"
[let]
blocks = "1 if N <= ALONE else min(ceil_div(N, BLOCK*ITEMS*VEC), PER_SM*sms)"
[require]
"a thread's chains fit in its registers" = "ITEMS*VEC <= 32 and BLOCK*(24 + 2*ITEMS*VEC) <= 65536"
"no chain of additions is longer than 2048" = "N <= 2048*PER_SM*sms*BLOCK*ITEMS*VEC and (FINISH == 0 or PER_SM*sms <= 2048)"
"elements are counted in 31 bits" = "N + blocks*BLOCK*ITEMS*VEC < 4294967296"
[[launch]]                                             # FINISH 0: sums apart, then the sum of the sums
entry = "sum"
grid  = ["blocks"]
block = ["BLOCK"]
args  = ["x", "partial", "N"]
when  = "blocks > 1 and FINISH == 0"
[[launch]]
entry = "sum"
grid  = ["1"]
block = ["BLOCK"]
args  = ["partial", "out", "blocks"]
when  = "blocks > 1 and FINISH == 0 and EARLY == 0"
[[launch]]
entry = "sum"
grid  = ["1"]
block = ["BLOCK"]
args  = ["partial", "out", "blocks"]
programmatic = true
when  = "blocks > 1 and FINISH == 0 and EARLY == 1"
[[launch]]                                             # FINISH 1: zero, then atomics
entry = "zero"
grid  = ["1"]
block = ["1"]
args  = ["out"]
when  = "blocks > 1 and FINISH == 1"
[[launch]]
entry = "add"
grid  = ["blocks"]
block = ["BLOCK"]
args  = ["x", "out", "N"]
when  = "blocks > 1 and FINISH == 1 and EARLY == 0"
[[launch]]
entry = "add"
grid  = ["blocks"]
block = ["BLOCK"]
args  = ["x", "out", "N"]
programmatic = true
when  = "blocks > 1 and FINISH == 1 and EARLY == 1"
[[launch]]                                             # few elements: one block does it
entry = "sum"
grid  = ["1"]
block = ["BLOCK"]
args  = ["x", "out", "N"]
when  = "blocks == 1"
[[start]]
BLOCK  = 512
ITEMS  = 4
PER_SM = 4
[[start]]
BLOCK  = 1024
ITEMS  = 4
PER_SM = 2
FINISH = 1
[[start]]
BLOCK  = 1024
ITEMS  = 2
PER_SM = 2
ALONE  = 131072
EARLY  = 1
*/
// Bound: 4 bytes per element; 2^28 of them are 1.07 GB, 255 us at 4.2 TB/s. At 2^16 it is launches that count.
#define BLOCK 256    // tune: 128, 256, 512, 768, 1024; threads per block
#define VEC 4        // tune: 1, 2, 4; elements per access
#define ITEMS 1      // tune: 1, 2, 4, 8; accesses, and chains of additions, in flight per thread
#define PER_SM 8     // tune: 1, 2, 3, 4, 6, 8, 16; at most so many blocks per SM
#define FINISH 0     // tune: 0, 1; 0 a second launch over the blocks' sums, 1 atomics on a zeroed result
#define ALONE 0      // tune: 0, 16384, 32768, 65536, 131072; up to so many elements one block does it alone
#define EARLY 0      // tune: 0, 1; the second launch starts before the first has ended (dependent launch)
#define LOAD 0       // tune: 0, 1, 2; 0 plain, 1 streaming, 2 L2 only

#if VEC == 4
using raw_t = float4;
#elif VEC == 2
using raw_t = float2;
#else
using raw_t = float;
#endif
union Pack {
  raw_t raw;
  float v[VEC];
};

// where the launch before may still be running: until all that it wrote is there
__device__ __forceinline__ void wait_for_launch_before() {
#if EARLY
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ raw_t load(const raw_t* p) {
#if LOAD == 1
  return __ldcs(p);
#elif LOAD == 2
  return __ldcg(p);
#else
  return *p;
#endif
}

__device__ __forceinline__ float thread_sum(const float* x, unsigned n) {
  const raw_t* xs = reinterpret_cast<const raw_t*>(x);
  const unsigned vectors = n / VEC, stride = gridDim.x * BLOCK * ITEMS;
  Pack s[ITEMS] = {};
  for (unsigned i = blockIdx.x * BLOCK * ITEMS + threadIdx.x; i < vectors; i += stride) {
    Pack v[ITEMS] = {};
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
      if (i + k * BLOCK < vectors) v[k].raw = load(xs + i + k * BLOCK);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
#pragma unroll
      for (int e = 0; e < VEC; ++e) s[k].v[e] += v[k].v[e];
  }
  float all = 0.0f;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
#pragma unroll
    for (int e = 0; e < VEC; ++e) all += s[k].v[e];
  const unsigned tail = vectors * VEC + blockIdx.x * BLOCK + threadIdx.x;  // at most VEC - 1 elements
  return tail < n ? all + x[tail] : all;
}

__device__ __forceinline__ float block_sum(float v) {
  __shared__ float part[BLOCK / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x < BLOCK / 32 ? part[threadIdx.x] : 0.0f;  // the first warp finishes it
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}

extern "C" __global__ void zero(float* out) {
#if EARLY
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  *out = 0.0f;
}

extern "C" __global__ void __launch_bounds__(BLOCK) sum(const float* x, float* out, int n) {
#if EARLY
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  wait_for_launch_before();  // x may be the sums of the launch before
  const float s = block_sum(thread_sum(x, n));
  if (threadIdx.x == 0) out[blockIdx.x] = s;
}

extern "C" __global__ void __launch_bounds__(BLOCK) add(const float* x, float* out, int n) {
  const float s = block_sum(thread_sum(x, n));
  if (threadIdx.x == 0) {
    wait_for_launch_before();  // until the result is zeroed
    atomicAdd(out, s);
  }
}
