/* tunesmith 1
entry = "topk_softmax"
grid  = ["T"]
block = ["256"]
args  = ["logits", "w", "idx", "T"]
[fixed]
E = 256
k = 8
*/
#include <stdint.h>
#include <math_constants.h>
// one block of 256 threads per row, one expert per thread; E = 256, k = 8
extern "C" __global__ void topk_softmax(const float* __restrict__ logits, float* __restrict__ w, int* __restrict__ idx, int T) {
  __shared__ float red[256];
  __shared__ int arg[256];
  __shared__ float p[256];
  const size_t t = blockIdx.x;
  const int e = threadIdx.x;
  const float v = logits[t * 256 + e];
  red[e] = v;
  __syncthreads();
  for (int o = 128; o > 0; o >>= 1) {
    if (e < o) red[e] = fmaxf(red[e], red[e + o]);
    __syncthreads();
  }
  const float m = red[0];
  __syncthreads();
  const float ex = expf(v - m);
  red[e] = ex;
  __syncthreads();
  for (int o = 128; o > 0; o >>= 1) {
    if (e < o) red[e] += red[e + o];
    __syncthreads();
  }
  const float total = red[0];
  __syncthreads();
  p[e] = ex / total;
  for (int k = 0; k < 8; ++k) {
    red[e] = p[e];
    arg[e] = e;
    __syncthreads();
    for (int o = 128; o > 0; o >>= 1) {
      if (e < o && (red[e + o] > red[e] || (red[e + o] == red[e] && arg[e + o] < arg[e]))) {
        red[e] = red[e + o];
        arg[e] = arg[e + o];
      }
      __syncthreads();
    }
    if (e == 0) {
      w[t * 8 + k] = red[0];
      idx[t * 8 + k] = arg[0];
      p[arg[0]] = -1.0f;
    }
    __syncthreads();
  }
}
