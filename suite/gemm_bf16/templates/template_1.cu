/* tunesmith 1
entry = "gemm_bf16"
grid  = ["128 if M <= 64 else min(CTAS, groups*CL)"]
block = ["384"]
args  = ["A", "B", "C", "M"]
shared_bytes = "2048 + max(big_bytes, small_bytes)"
[fixed]
io = "bf16"
N = 4096
K = 4096
[let]
groups      = "ceil_div(M, 128*CL)*16"
cols        = "32*CL"
big_bytes   = "STAGES*49152 + 32768*EPI"
small_bytes = "max(SSTAGES*SKS*(64 + cols)*128, 256*(cols + 4))"
[require]
"shared memory of a block" = "2048 + max(STAGES*49152 + 32768*EPI, SSTAGES*SKS*(64 + 32*CL)*128) <= 232448"
"whole clusters in the grid" = "CTAS % CL == 0"
"no more ring slots than k-steps in the small path" = "SSTAGES*SKS*CL <= 64"
[[start]]
CL = 4
CTAS = 128
GM = 4
[[start]]
CL = 2
CTAS = 128
GM = 8
SKS = 2
SSTAGES = 6
[[start]]
CL = 2
CTAS = 132
GM = 8
SKS = 2
SSTAGES = 6
[[start]]
CL = 8
CTAS = 128
GM = 2
SKS = 1
SSTAGES = 5
*/
#include <cuda_bf16.h>
#include <stdint.h>
#define CL      4      // tune: 2, 4, 8; cluster size: blocks that share B by multicast (M > 64), split of K (M <= 64)
#define STAGES  4      // tune: 3, 4; pipeline slots of 48 KiB, M > 64
#define CTAS    128    // tune: 120, 128, 132, 512; blocks of the persistent grid, M > 64
#define GM      4      // tune: 1, 2, 4, 8, 16; rasterisation: clusters along m before moving along n
#define EPI     1      // tune: 0, 1; 0 = direct stores, 1 = stmatrix and TMA store
#define LAG     1      // tune: 0, 1; wgmma groups left in flight when a slot is released
#define SKS     2      // tune: 1, 2, 4; k-step of the small path, in units of 64
#define SSTAGES 4      // tune: 2, 3, 4, 5, 6, 8; ring slots of the small path
#define PF      1      // tune: 0, 1, 2; L2 prefetch size of the small path's loads of B: none, 128 B, 256 B
#define SUNROLL 1      // tune: 1, 2, 4; unroll of the k-loop, M > 64

#define DIM_N 4096
#define DIM_K 4096
#define NT (32 * CL)

struct __align__(128) TMap { unsigned char b[128]; };
__device__ TMap g_tmap[512 * 3];

__device__ __forceinline__ uint32_t smem_u32(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ uint32_t cluster_rank() { uint32_t r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ void cluster_sync_all() {
  asm volatile("barrier.cluster.arrive.release;\n" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");
}
__device__ __forceinline__ void mbar_init(uint32_t a, uint32_t c) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(a), "r"(c) : "memory"); }
__device__ __forceinline__ void mbar_expect(uint32_t a, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(a), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint32_t a, uint32_t parity) {
  uint32_t ok;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(ok) : "r"(a), "r"(parity) : "memory");
  } while (!ok);
}
__device__ __forceinline__ uint32_t mapa(uint32_t a, uint32_t cta) {
  uint32_t r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(cta));
  return r;
}
__device__ __forceinline__ void mbar_arrive_remote(uint32_t a) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(a) : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t dst, const TMap* t, int c0, int c1, uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(dst), "l"(t), "r"(c0), "r"(c1), "r"(bar) : "memory");
}
__device__ __forceinline__ void tma_load_mc(uint32_t dst, const TMap* t, int c0, int c1, uint32_t bar, uint16_t mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
               ::"r"(dst), "l"(t), "r"(c0), "r"(c1), "r"(bar), "h"(mask) : "memory");
}
__device__ __forceinline__ void tma_store(const TMap* t, int c0, int c1, uint32_t src) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(t), "r"(c0), "r"(c1), "r"(src) : "memory");
}
// builds a 2-d bf16 tensor map (128-byte swizzle, boxes of 64 columns) in shared memory and publishes it; one whole warp
__device__ __forceinline__ void make_tmap(unsigned char* s, TMap* g, const void* base, uint32_t cols, uint32_t rows, uint32_t box_rows) {
  const int lane = threadIdx.x & 31;
  reinterpret_cast<uint32_t*>(s)[lane] = 0;
  __syncwarp();
  const uint64_t a = smem_u32(s);
  if (lane == 0) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"l"(a), "l"((uint64_t)base) : "memory");
    asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], %1;" ::"l"(a), "n"(1) : "memory");
    asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"l"(a), "r"(64) : "memory");
    asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"l"(a), "r"(box_rows) : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"l"(a), "r"(cols) : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"l"(a), "r"(rows) : "memory");
    asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"l"(a), "l"((uint64_t)cols * 2) : "memory");
    asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, %1;" ::"l"(a), "r"(1) : "memory");
    asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, %1;" ::"l"(a), "r"(1) : "memory");
    asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], %1;" ::"l"(a), "n"(10) : "memory");
    asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], %1;" ::"l"(a), "n"(0) : "memory");
    asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], %1;" ::"l"(a), "n"(3) : "memory");
    asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], %1;" ::"l"(a), "n"(0) : "memory");
  }
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
               ::"l"((uint64_t)__cvta_generic_to_global(g)), "r"((uint32_t)a) : "memory");
  __syncwarp();
}
__device__ __forceinline__ void acquire_tmap(const TMap* g) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(g) : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int X> __device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(X) : "memory"); }
template <int X> __device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(X) : "memory"); }

__device__ __forceinline__ uint64_t mk_desc(uint32_t a) {   // K-major, 128-byte swizzle, 1024 bytes per 8 rows
  return (uint64_t)((a & 0x3FFFF) >> 4) | ((uint64_t)1 << 16) | ((uint64_t)64 << 32) | ((uint64_t)1 << 62);
}
__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int X> __device__ __forceinline__ void wg_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(X) : "memory"); }

#define F4(i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define F16(i) F4(i), F4((i) + 4), F4((i) + 8), F4((i) + 12)
__device__ __forceinline__ void wgmma_n256(float (&d)[128], uint64_t da, uint64_t db, int acc) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, 0;\n}\n"
      : F16(0), F16(16), F16(32), F16(48), F16(64), F16(80), F16(96), F16(112)
      : "l"(da), "l"(db), "r"(acc));
}
__device__ __forceinline__ void wgmma_n64(float (&d)[32], uint64_t da, uint64_t db, int acc) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;\n}\n"
      : F16(0), F16(16)
      : "l"(da), "l"(db), "r"(acc));
}
__device__ __forceinline__ void cp16_a(uint32_t dst, const void* src, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
__device__ __forceinline__ void cp16_b(uint32_t dst, const void* src) {
#if PF == 0
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
#elif PF == 1
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
#else
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
#endif
}
__device__ __forceinline__ uint32_t pack2(float x, float y) {
  __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<uint32_t*>(&h);
}

// M <= 64: K is split over the cluster, every block streams NT rows of B; partial sums are added through distributed shared memory
__device__ __forceinline__ void small_load(const __nv_bfloat16* __restrict__ A, const __nv_bfloat16* __restrict__ B, int M, uint32_t dst, int n0, int k0) {
  constexpr int CH = 8 * SKS, TOTAL = (64 + NT) * CH;
#pragma unroll
  for (int j = 0; j < (TOTAL + 383) / 384; ++j) {
    const int i = threadIdx.x + j * 384;
    if (TOTAL % 384 == 0 || i < TOTAL) {
      const int c = i % CH, r = i / CH;
      const uint32_t d = dst + (c >> 3) * ((64 + NT) * 128) + r * 128 + (((c & 7) ^ (r & 7)) << 4);
      if (r < 64) {
        const bool in = r < M;
        cp16_a(d, A + (size_t)(in ? r : 0) * DIM_K + k0 + c * 8, in ? 16u : 0u);
      } else {
        cp16_b(d, B + (size_t)(n0 + r - 64) * DIM_K + k0 + c * 8);
      }
    }
  }
}
__device__ __forceinline__ void small_path(const __nv_bfloat16* __restrict__ A, const __nv_bfloat16* __restrict__ B, __nv_bfloat16* __restrict__ C, int M, unsigned char* ring) {
  constexpr int KR = DIM_K / CL, KST = 64 * SKS, STEPS = KR / KST, STAGE = SKS * (64 + NT) * 128;
  constexpr int CHUNKS = NT / 64, PER = CHUNKS > 1 ? CHUNKS / 2 : 1;
  const uint32_t rank = cluster_rank();
  const int n0 = (int)(blockIdx.x / CL) * NT, kb = (int)rank * KR;
  const int wg = threadIdx.x / 128 - 1;
  const uint32_t base = smem_u32(ring);
  const bool active = wg >= 0 && wg < CHUNKS;
  float acc[PER][32];
#pragma unroll
  for (int p = 0; p < PER; ++p)
#pragma unroll
    for (int i = 0; i < 32; ++i) acc[p][i] = 0.f;
#pragma unroll 1
  for (int s = 0; s < SSTAGES; ++s) {
    if (s < STEPS) small_load(A, B, M, base + s * STAGE, n0, kb + s * KST);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  int slot = 0;
#pragma unroll 1
  for (int k = 0; k < STEPS; ++k) {
    asm volatile("cp.async.wait_group %0;" ::"n"(SSTAGES - 1) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const uint32_t st = base + slot * STAGE;
    if (active) {
      wg_fence();
#pragma unroll
      for (int sub = 0; sub < SKS; ++sub) {
        const uint32_t sb = st + sub * ((64 + NT) * 128);
        const uint64_t da = mk_desc(sb);
#pragma unroll
        for (int p = 0; p < PER; ++p) {
          const uint64_t db = mk_desc(sb + 8192 + (wg * PER + p) * 8192);
#pragma unroll
          for (int kk = 0; kk < 4; ++kk) wgmma_n64(acc[p], da + kk * 2, db + kk * 2, 1);
        }
      }
      wg_commit();
      wg_wait<0>();
    }
    __syncthreads();
    if (k + SSTAGES < STEPS) small_load(A, B, M, st, n0, kb + (k + SSTAGES) * KST);
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (++slot == SSTAGES) slot = 0;
  }
  constexpr int LD = NT + 4;
  float* red = reinterpret_cast<float*>(ring);
  if (active) {
    const int t = threadIdx.x & 127, row = (t / 32) * 16 + (t & 31) / 4, col = (t & 3) * 2;
#pragma unroll
    for (int p = 0; p < PER; ++p)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int c = (wg * PER + p) * 64 + j * 8 + col;
        *reinterpret_cast<float2*>(red + row * LD + c) = make_float2(acc[p][j * 4], acc[p][j * 4 + 1]);
        *reinterpret_cast<float2*>(red + (row + 8) * LD + c) = make_float2(acc[p][j * 4 + 2], acc[p][j * 4 + 3]);
      }
  }
  cluster_sync_all();
  for (int i = threadIdx.x; i < 512; i += 384) {
    const int r = i / 8, c = (int)rank * 32 + (i % 8) * 4;
    if (r < M) {
      const uint32_t a = base + (r * LD + c) * 4;
      float4 v[CL];
#pragma unroll
      for (int q = 0; q < CL; ++q) {
        const uint32_t ra = mapa(a, q);
        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[q].x), "=f"(v[q].y), "=f"(v[q].z), "=f"(v[q].w) : "r"(ra) : "memory");
      }
      float4 s = v[0];
#pragma unroll
      for (int q = 1; q < CL; ++q) { s.x += v[q].x; s.y += v[q].y; s.z += v[q].z; s.w += v[q].w; }
      *reinterpret_cast<uint2*>(C + (size_t)r * DIM_N + n0 + c) = make_uint2(pack2(s.x, s.y), pack2(s.z, s.w));
    }
  }
  cluster_sync_all();
}

__device__ __forceinline__ void tile_of(int g, int mgs, int& mg, int& nt) {
  const int per = GM * 16, sg = g / per, rem = g - sg * per;
  const int left = mgs - sg * GM, gm = left < GM ? left : GM;
  nt = rem / gm;
  mg = sg * GM + (rem - nt * gm);
}

extern "C" __global__ void __cluster_dims__(CL, 1, 1) __launch_bounds__(384, 1)
gemm_bf16(const __nv_bfloat16* __restrict__ A, const __nv_bfloat16* __restrict__ B, __nv_bfloat16* __restrict__ C, int M) {
  extern __shared__ unsigned char smem_raw[];
  unsigned char* smem = smem_raw + ((1024 - (smem_u32(smem_raw) & 1023)) & 1023);
  unsigned char* ring = smem + 1024;
  if (M <= 64) {
    small_path(A, B, C, M, ring);
    return;
  }
  const int wg = threadIdx.x / 128, warp = threadIdx.x / 32;
  const uint32_t bars = smem_u32(smem), tiles = smem_u32(ring);
  const uint32_t full = bars, empty = bars + 64;
  TMap* tm = g_tmap + blockIdx.x * 3;
  const uint32_t rank = cluster_rank();
  if (warp == 0) {
    make_tmap(smem + 512, tm, A, DIM_K, (uint32_t)M, 128);
    make_tmap(smem + 640, tm + 1, B, DIM_K, DIM_N, 256 / CL);
  } else if (warp == 4) {
#if EPI
    make_tmap(smem + 768, tm + 2, C, DIM_N, (uint32_t)M, 64);
#endif
  } else if (warp == 1 && (threadIdx.x & 31) == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbar_init(full + s * 8, 1);
      mbar_init(empty + s * 8, 2 * CL);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_sync_all();

  const int mgs = (M + 128 * CL - 1) / (128 * CL), groups = mgs * 16;
  const int g0 = blockIdx.x / CL, gstep = gridDim.x / CL;
  constexpr int KSTEPS = DIM_K / 64, UNR = SUNROLL;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      acquire_tmap(tm);
      acquire_tmap(tm + 1);
      bulk_commit();
      bulk_wait_read<0>();
      int s = 0;
      uint32_t ph = 0;
      for (int g = g0; g < groups; g += gstep) {
        int mg, nt;
        tile_of(g, mgs, mg, nt);
        const int m0 = (mg * CL + (int)rank) * 128, nb = nt * 256 + (int)rank * (256 / CL);
#pragma unroll 1
        for (int k = 0; k < KSTEPS; ++k) {
          mbar_wait(empty + s * 8, ph ^ 1);
          const uint32_t fb = full + s * 8, st = tiles + s * 49152;
          mbar_expect(fb, 49152);
          tma_load(st, tm, k * 64, m0, fb);
          tma_load_mc(st + 16384 + rank * (32768 / CL), tm + 1, k * 64, nb, fb, (uint16_t)((1 << CL) - 1));
          if (++s == STAGES) { s = 0; ph ^= 1; }
        }
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int w = wg - 1, t = threadIdx.x & 127, lane = t & 31, wq = t / 32;
    float acc[128];
    uint32_t rel = 0;
    if (t < CL) rel = mapa(empty, t);
#if EPI
    if (t == 0) {
      acquire_tmap(tm + 2);
      bulk_commit();
      bulk_wait_read<0>();
    }
    const uint32_t stg = tiles + STAGES * 49152 + w * 16384;
#endif
    int s = 0;
    uint32_t ph = 0;
    for (int g = g0; g < groups; g += gstep) {
      int mg, nt;
      tile_of(g, mgs, mg, nt);
      const int m0 = (mg * CL + (int)rank) * 128 + w * 64, n0 = nt * 256;
      int prev = 0;
#pragma unroll UNR
      for (int k = 0; k < KSTEPS; ++k) {
        mbar_wait(full + s * 8, ph);
        const uint32_t st = tiles + s * 49152;
        const uint64_t da = mk_desc(st + w * 8192), db = mk_desc(st + 16384);
        wg_fence();
        wgmma_n256(acc, da, db, k > 0);
        wgmma_n256(acc, da + 2, db + 2, 1);
        wgmma_n256(acc, da + 4, db + 4, 1);
        wgmma_n256(acc, da + 6, db + 6, 1);
        wg_commit();
#if LAG
        wg_wait<1>();
        if (k > 0 && t < CL) mbar_arrive_remote(rel + prev * 8);
#else
        wg_wait<0>();
        if (t < CL) mbar_arrive_remote(rel + s * 8);
#endif
        prev = s;
        if (++s == STAGES) { s = 0; ph ^= 1; }
      }
      wg_wait<0>();
#if LAG
      if (t < CL) mbar_arrive_remote(rel + prev * 8);
#endif
#if EPI
      const int row = wq * 16 + (lane & 15);
      const uint32_t rbase = stg + row * 128;
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        if (t == 0) bulk_wait_read<1>();
        asm volatile("bar.sync %0, 128;" ::"r"(w + 1) : "memory");
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
          const float* a = acc + (b * 8 + j) * 4;
          const uint32_t ad = rbase + (b & 1) * 8192 + (((j + (lane >> 4)) ^ (row & 7)) << 4);
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                       ::"r"(ad), "r"(pack2(a[0], a[1])), "r"(pack2(a[2], a[3])), "r"(pack2(a[4], a[5])), "r"(pack2(a[6], a[7])) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(w + 1) : "memory");
        if (t == 0) {
          if (m0 < M) tma_store(tm + 2, n0 + b * 64, m0, stg + (b & 1) * 8192);
          bulk_commit();
        }
      }
#else
      const int r0 = m0 + wq * 16 + lane / 4, c0 = n0 + (lane & 3) * 2;
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        if (r0 < M) *reinterpret_cast<uint32_t*>(C + (size_t)r0 * DIM_N + c0 + j * 8) = pack2(acc[j * 4], acc[j * 4 + 1]);
        if (r0 + 8 < M) *reinterpret_cast<uint32_t*>(C + (size_t)(r0 + 8) * DIM_N + c0 + j * 8) = pack2(acc[j * 4 + 2], acc[j * 4 + 3]);
      }
#endif
    }
#if EPI
    if (t == 0) bulk_wait<0>();
#endif
    __syncwarp();
  }
  cluster_sync_all();
}
