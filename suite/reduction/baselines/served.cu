/* tunesmith 1
[workspace]
partial = "f32[blocks]"
[let]
blocks = "1 if N <= 32768 else min(ceil_div(N, 512*4*4), 4*sms)"
[[launch]]
entry = "sum"
grid  = ["blocks"]
block = ["512"]
args  = ["x", "partial", "N"]
when  = "blocks > 1"
[[launch]]
entry = "sum"
grid  = ["1"]
block = ["512"]
args  = ["partial", "out", "blocks"]
when  = "blocks > 1"
[[launch]]
entry = "sum"
grid  = ["1"]
block = ["512"]
args  = ["x", "out", "N"]
when  = "blocks == 1"
*/
// One wave of blocks, each sum written apart, and a second launch that adds them: the same result in every run.
// Bound: 4 bytes per element; 2^28 of them are 1.07 GB, 255 us at 4.2 TB/s. Four 16-byte loads in flight for each of
// 2048 threads make 128 KB per SM, five times what latency times bandwidth asks for.
constexpr int BLOCK = 512, ITEMS = 4;

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

__device__ __forceinline__ float thread_sum(const float* __restrict__ x, unsigned n) {
  const float4* xs = reinterpret_cast<const float4*>(x);
  const unsigned vectors = n / 4, stride = gridDim.x * BLOCK * ITEMS;
  float4 s[ITEMS] = {};
  for (unsigned i = blockIdx.x * BLOCK * ITEMS + threadIdx.x; i < vectors; i += stride) {
    float4 v[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) v[k] = i + k * BLOCK < vectors ? __ldg(xs + i + k * BLOCK) : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) s[k].x += v[k].x, s[k].y += v[k].y, s[k].z += v[k].z, s[k].w += v[k].w;
  }
  float all = 0.0f;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) all += (s[k].x + s[k].y) + (s[k].z + s[k].w);
  const unsigned tail = vectors * 4 + blockIdx.x * BLOCK + threadIdx.x;  // at most three elements, of the first block
  return tail < n ? all + x[tail] : all;
}

extern "C" __global__ void __launch_bounds__(BLOCK, 4) sum(const float* __restrict__ x, float* __restrict__ out, int n) {
  const float s = block_sum(thread_sum(x, n));
  if (threadIdx.x == 0) out[blockIdx.x] = s;
}
