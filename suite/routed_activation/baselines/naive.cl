/* tunesmith 1
entry = "routed_activation"
grid  = ["ceil_div(rows, 16)"]
block = ["16"]
args  = ["counts", "offsets", "x", "out", "rows"]
*/
// One work-item per row, which looks for its expert one by one. Bound: 3*d*sizeof(io) bytes and d exp per row in use.
#define EXPERTS 16  // dim: E
#define DIM_D 768   // dim: d
typedef float io_t;  // type: io

__kernel void routed_activation(__global const int* counts, __global const int* offsets, __global const io_t* x,
                                __global io_t* out, int rows) {
  const int row = get_global_id(0);
  if (row >= rows) return;
  int e = 0;
  while (e < EXPERTS && row >= offsets[e + 1]) ++e;
  if (e == EXPERTS || row - offsets[e] >= counts[e]) return;  // padding
  for (int i = 0; i < DIM_D; ++i) {
    const float gate = x[(size_t)row * 2 * DIM_D + i], up = x[(size_t)row * 2 * DIM_D + DIM_D + i];
    out[(size_t)row * DIM_D + i] = gate / (1.0f + exp(-gate)) * up;
  }
}
