/* tunesmith 1
[let]
blocks = "min(ceil_div(N, 1024*4*4), 2*sms)"
[[launch]]
entry = "zero"
grid  = ["1"]
block = ["1"]
args  = ["out"]
[[launch]]
entry = "sum"
grid  = ["blocks"]
block = ["1024"]
args  = ["x", "out", "N"]
*/
// Each block adds its sum to the result, which a launch before has set to zero: no workspace, but another order of
// additions, and so other last bits, in every run. Bound: as in served.cu; 264 atomics on one word take about 1 us.
constexpr int BLOCK = 1024, ITEMS = 4;

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

extern "C" __global__ void zero(float* out) { *out = 0.0f; }

extern "C" __global__ void __launch_bounds__(BLOCK, 2) sum(const float* __restrict__ x, float* out, int n) {
  const float s = block_sum(thread_sum(x, n));
  if (threadIdx.x == 0) atomicAdd(out, s);
}
