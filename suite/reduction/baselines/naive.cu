/* tunesmith 1
[workspace]
partial = "f32[1024]"
[[launch]]
entry = "sum"
grid  = ["1024"]
block = ["256"]
args  = ["x", "partial", "N"]
[[launch]]
entry = "sum"
grid  = ["1"]
block = ["256"]
args  = ["partial", "out", "1024"]
*/
// A tree in shared memory per block, then the same over the blocks' sums. Bound: 4 bytes per element; 2^28 of them are
// 1.07 GB, 255 us at 4.2 TB/s. Scalar loads, each addition waiting for its own: 4 bytes in flight per thread.
extern "C" __global__ void sum(const float* x, float* out, int n) {
  __shared__ float part[256];
  float s = 0.0f;
  for (size_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) s += x[i];
  part[threadIdx.x] = s;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
