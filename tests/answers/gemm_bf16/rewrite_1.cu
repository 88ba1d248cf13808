/* tunesmith 1
entry = "gemm_bf16"
grid  = ["128"]
block = ["384"]
shared_bytes = "206336"
args  = ["A", "B", "C", "M"]
[fixed]
N = 4096
K = 4096
*/
// C[m,n] = sum_k A[m,k] * B[n,k], N = K = 4096.
//  M  > 64: persistent 256x256 tiles per 2-CTA cluster (128x256 per CTA), wgmma m64n256k16, tensor maps built on the
//           device, TMA loads with the B tile multicast over the cluster, 4 stages of k = 64.
//  M <= 64: 64 columns per cluster, K split over the 2 CTAs, cp.async pipeline (6 stages of k = 128), reduction through
//           distributed shared memory.
#include <cuda_bf16.h>
#include <stdint.h>

#define GN 4096
#define GK 4096
#define STAGE_BYTES 49152u
#define OFF_RECV 196608u
#define OFF_BARS 204800u
#define OFF_MAPS 204928u

__device__ __align__(128) unsigned char g_tmaps[128 * 256];

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred P1;\n"
      "LAB_WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
      "@P1 bra DONE;\n"
      "bra LAB_WAIT;\n"
      "DONE:\n"
      "}\n" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ uint32_t mapa(uint32_t addr, uint32_t cta) {
  uint32_t r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(cta));
  return r;
}
__device__ __forceinline__ void mbar_arrive_remote(uint32_t raddr) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(raddr) : "memory");
}
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int NN>
__device__ __forceinline__ void wg_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(NN) : "memory");
}
__device__ __forceinline__ uint64_t mk_desc(uint32_t addr) {
  return (uint64_t)((addr & 0x3FFFFu) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}
__device__ __forceinline__ void tma_2d(uint32_t dst, const void* map, int c0, int c1, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
      "l"(map), "r"(c0), "r"(c1), "r"(bar)
      : "memory");
}
__device__ __forceinline__ void tma_2d_mc(uint32_t dst, const void* map, int c0, int c1, uint32_t bar, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
      "[%4], %5;" ::"r"(dst),
      "l"(map), "r"(c0), "r"(c1), "r"(bar), "h"(mask)
      : "memory");
}
// fills a zeroed 128-byte tensor map in shared memory: 2-D, 16-bit elements, [rows][4096], box 128 x 64, 128-byte swizzle
__device__ __forceinline__ void build_map(uint32_t s, const void* g, uint32_t rows) {
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(s), "l"((uint64_t)g) : "memory");
  asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], %1;" ::"r"(s), "r"(1) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(s), "r"(64) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(s), "r"(128) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(s), "r"(GK) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(s), "r"(rows) : "memory");
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(s), "l"((uint64_t)(GK * 2)) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(s), "r"(1) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(s), "r"(1) : "memory");
  asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 1;" ::"r"(s) : "memory");
  asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"r"(s) : "memory");
  asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" ::"r"(s) : "memory");
  asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(s) : "memory");
}

#define F8(o) "+f"(d[o]), "+f"(d[o + 1]), "+f"(d[o + 2]), "+f"(d[o + 3]), "+f"(d[o + 4]), "+f"(d[o + 5]), "+f"(d[o + 6]), "+f"(d[o + 7])
#define F32(o) F8(o), F8(o + 8), F8(o + 16), F8(o + 24)

__device__ __forceinline__ void wgmma_n256(float (&d)[128], uint64_t da, uint64_t db, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, 0;\n"
      "}\n"
      : F32(0), F32(32), F32(64), F32(96)
      : "l"(da), "l"(db), "r"(acc)
      : "memory");
}
__device__ __forceinline__ void wgmma_n64(float (&d)[32], uint64_t da, uint64_t db, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;\n"
      "}\n"
      : F32(0)
      : "l"(da), "l"(db), "r"(acc)
      : "memory");
}
__device__ __forceinline__ uint32_t pack2(float lo, float hi) {
  __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t*>(&v);
}
// 4x4 transpose over the lanes of a quad: afterwards lane t holds word t of lanes 0..3
__device__ __forceinline__ uint4 quad_transpose(uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3, bool b0, bool b1) {
  uint32_t r;
  r = __shfl_xor_sync(0xffffffffu, b0 ? x0 : x1, 1);
  if (b0) x0 = r; else x1 = r;
  r = __shfl_xor_sync(0xffffffffu, b0 ? x2 : x3, 1);
  if (b0) x2 = r; else x3 = r;
  r = __shfl_xor_sync(0xffffffffu, b1 ? x0 : x2, 2);
  if (b1) x0 = r; else x2 = r;
  r = __shfl_xor_sync(0xffffffffu, b1 ? x1 : x3, 2);
  if (b1) x1 = r; else x3 = r;
  return make_uint4(x0, x1, x2, x3);
}
__device__ __forceinline__ void tile_coords(int t, int ms, int& row, int& col) {
  const int g = t >> 7, r = t & 127;
  const int gs = min(8, ms - g * 8);
  col = r / gs;
  row = g * 8 + (r - col * gs);
  if (g & 1) col = 15 - col;
}

__device__ __forceinline__ void small_path(const __nv_bfloat16* __restrict__ A, const __nv_bfloat16* __restrict__ B,
                                           __nv_bfloat16* __restrict__ C, int M, uint32_t base, unsigned char* basep) {
  const int tid = threadIdx.x;
  const uint32_t rank = blockIdx.x & 1;
  const int cid = blockIdx.x >> 1;
  const uint32_t bfull = base + OFF_BARS, bempty = bfull + 48;
  cluster_arrive();
  if (tid == 0) {
    for (int s = 0; s < 6; ++s) {
      mbar_init(bfull + 8 * s, 256);
      mbar_init(bempty + 8 * s, 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int n0 = cid * 64, kbase = (int)rank * 2048;
  if (tid >= 128) {
    const int lt = tid - 128;
    const int c = lt & 15, r0 = lt >> 4;
    const uint32_t so = base + (c >> 3) * 8192 + r0 * 128 + (((c & 7) ^ (r0 & 7)) << 4);
    const __nv_bfloat16* bp = B + (size_t)(n0 + r0) * GK + kbase + c * 8;
    const __nv_bfloat16* ap[4];
    uint32_t asz[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = r0 + 16 * i;
      asz[i] = r < M ? 16u : 0u;
      ap[i] = A + (size_t)(r < M ? r : 0) * GK + kbase + c * 8;
    }
#pragma unroll
    for (int it = 0; it < 20; ++it) {
      if (it < 16) {
        const int s = it % 6;
        if (it >= 6) mbar_wait(bempty + 8 * s, ((it / 6) - 1) & 1);
        const int ko = ((it + cid) & 15) * 128;
        const uint32_t sa = so + s * 32768;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(sa + 16384 + i * 2048), "l"(bp + (size_t)i * 16 * GK + ko)
                       : "memory");
#pragma unroll
        for (int i = 0; i < 4; ++i)
          asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(sa + i * 2048), "l"(ap[i] + ko), "r"(asz[i])
                       : "memory");
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
      if (it >= 4) {
        asm volatile("cp.async.wait_group 4;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        mbar_arrive(bfull + 8 * ((it - 4) % 6));
      }
    }
    __syncwarp();
    cluster_wait();
    cluster_arrive();
    cluster_wait();
  } else {
    float d[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) d[i] = 0.0f;
#pragma unroll 1
    for (int it = 0; it < 16; ++it) {
      const int s = it % 6;
      mbar_wait(bfull + 8 * s, (it / 6) & 1);
      const uint64_t da = mk_desc(base + s * 32768), db = mk_desc(base + s * 32768 + 16384);
      wg_fence();
#pragma unroll
      for (int kk = 0; kk < 8; ++kk) {
        const int o = (kk >> 2) * 512 + (kk & 3) * 2;
        wgmma_n64(d, da + o, db + o, 1);
      }
      wg_commit();
      wg_wait<1>();
      if (it > 0 && tid == 0) mbar_arrive(bempty + 8 * ((it - 1) % 6));
    }
    wg_wait<0>();
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[i])::"memory");
    __syncwarp();
    cluster_wait();
    const uint32_t remote = mapa(base + OFF_RECV + tid * 16, rank ^ 1u);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float v0 = rank ? d[q * 4 + 0] : d[16 + q * 4 + 0];
      const float v1 = rank ? d[q * 4 + 1] : d[16 + q * 4 + 1];
      const float v2 = rank ? d[q * 4 + 2] : d[16 + q * 4 + 2];
      const float v3 = rank ? d[q * 4 + 3] : d[16 + q * 4 + 3];
      asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(remote + q * 2048), "f"(v0), "f"(v1), "f"(v2), "f"(v3)
                   : "memory");
    }
    cluster_arrive();
    cluster_wait();
    uint32_t lo[4], hi[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float4 p = *reinterpret_cast<const float4*>(basep + OFF_RECV + q * 2048 + tid * 16);
      const float v0 = rank ? d[16 + q * 4 + 0] : d[q * 4 + 0];
      const float v1 = rank ? d[16 + q * 4 + 1] : d[q * 4 + 1];
      const float v2 = rank ? d[16 + q * 4 + 2] : d[q * 4 + 2];
      const float v3 = rank ? d[16 + q * 4 + 3] : d[q * 4 + 3];
      lo[q] = pack2(v0 + p.x, v1 + p.y);
      hi[q] = pack2(v2 + p.z, v3 + p.w);
    }
    const int lane = tid & 31, w = tid >> 5;
    const bool b0 = lane & 1, b1 = lane & 2;
    const uint4 y0 = quad_transpose(lo[0], lo[1], lo[2], lo[3], b0, b1);
    const uint4 y1 = quad_transpose(hi[0], hi[1], hi[2], hi[3], b0, b1);
    const int row = w * 16 + (lane >> 2);
    __nv_bfloat16* cp = C + (size_t)row * GN + n0 + (int)rank * 32 + (lane & 3) * 8;
    if (row < M) *reinterpret_cast<uint4*>(cp) = y0;
    if (row + 8 < M) *reinterpret_cast<uint4*>(cp + 8 * GN) = y1;
  }
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
gemm_bf16(const __nv_bfloat16* __restrict__ A, const __nv_bfloat16* __restrict__ B, __nv_bfloat16* __restrict__ C, int M) {
  extern __shared__ unsigned char smem_raw[];
  const uint32_t raw = (uint32_t)__cvta_generic_to_shared(smem_raw);
  const uint32_t base = (raw + 1023u) & ~1023u;
  unsigned char* basep = smem_raw + (base - raw);

  if (M <= 64) {
    small_path(A, B, C, M, base, basep);
    return;
  }

  const int tid = threadIdx.x;
  const int warp = __shfl_sync(0xffffffffu, tid >> 5, 0);
  const int lane = tid & 31;
  const int wg = warp >> 2;
  const uint32_t rank = blockIdx.x & 1;
  const int cid = blockIdx.x >> 1;
  const uint32_t bfull = base + OFF_BARS, bempty = bfull + 32;
  unsigned char* mapA = g_tmaps + blockIdx.x * 256;
  unsigned char* mapB = mapA + 128;

  if (warp == 0) {
    const uint32_t sm = base + OFF_MAPS;
    uint32_t* z = reinterpret_cast<uint32_t*>(basep + OFF_MAPS);
    z[lane] = 0;
    z[lane + 32] = 0;
    __syncwarp();
    if (lane == 0) {
      build_map(sm, A, (uint32_t)M);
      build_map(sm + 128, B, GN);
    }
    __syncwarp();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(mapA),
                 "r"(sm)
                 : "memory");
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(mapB),
                 "r"(sm + 128)
                 : "memory");
    __syncwarp();
  } else if (warp == 1) {
    if (lane == 0) {
      for (int s = 0; s < 4; ++s) {
        mbar_init(bfull + 8 * s, 1);
        mbar_init(bempty + 8 * s, 4);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
  }
  __syncthreads();
  cluster_arrive();
  cluster_wait();

  const int ms = (M + 255) >> 8;
  const int total = ms << 4;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == 0 && lane == 0) {
      asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(mapA) : "memory");
      asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(mapB) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      uint32_t st = 0, ph = 1;
      for (int t = cid; t < total; t += 64) {
        int row, col;
        tile_coords(t, ms, row, col);
        const int m0 = row * 256 + (int)rank * 128;
        const int nb = col * 256 + (int)rank * 128;
#pragma unroll 1
        for (int k = 0; k < GK; k += 64) {
          mbar_wait(bempty + 8 * st, ph);
          const uint32_t full = bfull + 8 * st;
          const uint32_t sa = base + st * STAGE_BYTES;
          mbar_expect(full, STAGE_BYTES);
          tma_2d(sa, mapA, k, m0, full);
          tma_2d_mc(sa + 16384 + rank * 16384, mapB, k, nb, full, (uint16_t)3);
          if (++st == 4) { st = 0; ph ^= 1; }
        }
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int cw = wg - 1;
    const int tw = tid & 127;
    const bool b0 = lane & 1, b1 = lane & 2;
    const bool signal = (tw == 0) | (tw == 32);  // one lane of warps 0 and 1 releases the stage in CTA 0 and CTA 1
    const uint32_t rempty = mapa(bempty, (uint32_t)((tw >> 5) & 1));
    const uint64_t da0 = mk_desc(base + cw * 8192), db0 = mk_desc(base + 16384);
    uint32_t st = 0, ph = 0;
    float d[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) d[i] = 0.0f;
    for (int t = cid; t < total; t += 64) {
      uint32_t prev = 0;
#pragma unroll 1
      for (int k = 0; k < 64; ++k) {
        mbar_wait(bfull + 8 * st, ph);
        const uint64_t da = da0 + st * (STAGE_BYTES >> 4), db = db0 + st * (STAGE_BYTES >> 4);
        wg_fence();
        wgmma_n256(d, da, db, k);
        wgmma_n256(d, da + 2, db + 2, 1);
        wgmma_n256(d, da + 4, db + 4, 1);
        wgmma_n256(d, da + 6, db + 6, 1);
        wg_commit();
        wg_wait<1>();
        if (k > 0 && signal) mbar_arrive_remote(rempty + 8 * prev);
        prev = st;
        if (++st == 4) { st = 0; ph ^= 1; }
      }
      wg_wait<0>();
#pragma unroll
      for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i])::"memory");
      if (signal) mbar_arrive_remote(rempty + 8 * prev);
      __syncwarp();

      int row, col;
      tile_coords(t, ms, row, col);
      const int r = row * 256 + (int)rank * 128 + cw * 64 + (warp & 3) * 16 + (lane >> 2);
      __nv_bfloat16* cp = C + (size_t)r * GN + col * 256 + (lane & 3) * 8;
      const bool ok0 = r < M, ok1 = r + 8 < M;
#pragma unroll
      for (int jb = 0; jb < 8; ++jb) {
        const int o = jb * 16;
        const uint4 y0 = quad_transpose(pack2(d[o + 0], d[o + 1]), pack2(d[o + 4], d[o + 5]), pack2(d[o + 8], d[o + 9]),
                                        pack2(d[o + 12], d[o + 13]), b0, b1);
        const uint4 y1 = quad_transpose(pack2(d[o + 2], d[o + 3]), pack2(d[o + 6], d[o + 7]), pack2(d[o + 10], d[o + 11]),
                                        pack2(d[o + 14], d[o + 15]), b0, b1);
        if (ok0) __stcs(reinterpret_cast<uint4*>(cp + jb * 32), y0);
        if (ok1) __stcs(reinterpret_cast<uint4*>(cp + 8 * GN + jb * 32), y1);
      }
    }
    __syncwarp();
  }
  cluster_arrive();
  cluster_wait();
}
