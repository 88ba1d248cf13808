/* tunesmith 1
entry = "gemm_bf16"
grid  = ["128"]
block = ["384"]
args  = ["A", "B", "C", "M"]
shared_bytes = "max(large_bytes, small_bytes) + 1536"
[fixed]
io = "bf16"
N = 4096
K = 4096
[let]
large_bytes = "STAGES*768*BK + (32768*(EPI - 1) if EPI >= 2 else 0)"
small_bytes = "SSTAGES*(64 + 32*SSPLIT)*SBK*2 + 8192*(SSPLIT - 1)"
[require]
"a cluster has at most 4 CTAs (one releasing warp per peer)" = "CM*CN <= 4"
"the K split of the small path lies inside a cluster" = "(CM*CN) % SSPLIT == 0"
"the shared memory of a block" = "max(large_bytes, small_bytes) + 1536 <= 232448"
"an unrolled ring covers the k steps in whole rounds" = "UNROLL == 0 or (4096 // BK) % STAGES == 0"
[[start]]
STAGES = 4
UNROLL = 1
EPI = 2
[[start]]
CM = 2
CN = 2
EPI = 2
UNROLL = 1
SSPLIT = 4
SSTAGES = 4
[[start]]
BN = 128
CM = 1
CN = 2
EPI = 2
GROUP = 4
SPF = 1
SEARLY = 1
[[start]]
BK = 32
STAGES = 8
EPI = 2
KROT = 4
SBK = 64
SSTAGES = 8
*/
// C[m,n] = sum_k A[m,k] * B[n,k], N = K = 4096.
//  M  > 64: persistent tiles, one (CM x CN)-CTA cluster per (CM*BM) x (CN*BN) tile (by default 256x256 per 2-CTA cluster, 128x256
//           per CTA), wgmma m64nBNk16, tensor maps built on the device, TMA loads with the tiles shared inside the cluster
//           multicast, a ring of STAGES stages of k = BK.
//  M <= 64: 32*SSPLIT columns per SSPLIT CTAs, K split over these CTAs, cp.async pipeline (SSTAGES stages of k = SBK),
//           reduction through distributed shared memory.
#include <cuda_bf16.h>
#include <stdint.h>

// M > 64
#define BN      256  // tune: 128, 256; tile columns per CTA, the tile is 128x256 or 256x128
#define BK      64   // tune: 32, 64; k per stage (32: 64-byte swizzle, finer stages)
#define STAGES  4    // tune: 2, 3, 4, 6, 8; stages of the TMA ring
#define CM      2    // tune: 1, 2, 4; CTAs of a cluster along M (they share the B tile)
#define CN      1    // tune: 1, 2, 4; CTAs of a cluster along N (they share the A tile)
#define MCAST   1    // tune: 0, 1; when CM*CN > 1; shared tiles are multicast (0: every CTA loads its own, CTAs not coupled)
#define GROUP   8    // tune: 1, 2, 4, 8, 16, 32; rasterisation: cluster tile rows per group
#define KROT    1    // tune: 1, 2, 4, 8; clusters start at this many different places of K
#define LHINT   0    // tune: 0, 1, 2, 3; L2 policy of the loads: none, both evict_last, A last and B first, A first and B last
#define UNROLL  0    // tune: 0, 1; consumer loop unrolled over the ring (stage addresses are constants)
#define WAITN   1    // tune: 0, 1; wgmma groups left in flight before a stage is released
#define EPI     0    // tune: 0, 1, 2, 3; stores: direct streaming, direct plain, TMA from a half staging tile, TMA from a full one
// M <= 64
#define SSPLIT  2    // tune: 1, 2, 4; CTAs over which K is split (32*SSPLIT columns each)
#define SBK     128  // tune: 64, 128, 256; k per stage
#define SSTAGES 6    // tune: 3, 4, 5, 6, 8; stages of the cp.async ring
#define SPF     256  // tune: 0, 1, 128, 256; L2 prefetch of B: none, bulk prefetch of the whole slab at the start, bytes per access
#define SEARLY  0    // tune: 0, 1; first loads issued before the barriers are ready

#define GN 4096
#define GK 4096
#define NCTA 128                           // CTAs of the grid
#define CL (CM * CN)                       // CTAs of a cluster
#define NCL (NCTA / CL)                    // clusters
#define MT (256 / BN)                      // m64 blocks per consumer warpgroup
#define BM (128 * MT)                      // tile rows per CTA
#define TM (CM * BM)                       // tile rows per cluster
#define TN (CN * BN)                       // tile columns per cluster
#define NT (GN / TN)                       // cluster tiles along N
#define NK (GK / BK)                       // k steps
#define PITCH (BK * 2)                     // bytes of a tile row in shared memory (= swizzle width)
#define A_BYTES (BM * PITCH)
#define STAGE_BYTES ((uint32_t)((BM + BN) * PITCH))
#define MCA (MCAST && CN > 1)              // A multicast
#define MCB (MCAST && CM > 1)              // B multicast
#define NSIG (MCAST ? CM + CN - 1 : 1)     // CTAs whose ring a consumer releases
#define BOX_A (MCA ? BM / CN : BM)
#define BOX_B (MCB ? BN / CM : BN)
#define KU (UNROLL ? STAGES : 1)
#define NMAPS (EPI >= 2 ? 3 : 2)
#define NCH (MT * BN / 64)                 // 16x64 chunks of a warp's part of the tile
#define NBUF (EPI == 3 ? NCH : NCH / 2)    // staging chunks per warp

#define SN (32 * SSPLIT)                   // columns of a small tile
#define SK (GK / SSPLIT)                   // k of a CTA
#define SITERS (SK / SBK)
#define SLAG (SSTAGES - 2)
#define SA_BYTES (64 * SBK * 2)
#define SSTAGE_BYTES ((64 + SN) * SBK * 2)
#define SCPR (SBK / 8)                     // 16-byte chunks per row
#define SRP (256 / SCPR)                   // rows per pass of the 256 producer threads

#define LARGE_BYTES (STAGES * (BM + BN) * PITCH + (EPI >= 2 ? 8 * NBUF * 2048 : 0))
#define SMALL_BYTES (SSTAGES * SSTAGE_BYTES + 8192 * (SSPLIT - 1))
#define OFF_EPI (STAGES * STAGE_BYTES)
#define OFF_RECV ((uint32_t)(SSTAGES * SSTAGE_BYTES))
#define OFF_BARS ((uint32_t)(LARGE_BYTES > SMALL_BYTES ? LARGE_BYTES : SMALL_BYTES))
#define OFF_MAPS (OFF_BARS + 128u)

#if SPF == 256
#define SPF_STR ".L2::256B"
#elif SPF == 128
#define SPF_STR ".L2::128B"
#else
#define SPF_STR ""
#endif

#define POL_FIRST 0x12F0000000000000ull
#define POL_LAST 0x14F0000000000000ull
#define POL_A (LHINT == 3 ? POL_FIRST : POL_LAST)
#define POL_B (LHINT == 2 ? POL_FIRST : POL_LAST)

__device__ __align__(128) unsigned char g_tmaps[NCTA * NMAPS * 128];

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
// releases a stage: to a peer of the cluster, or only to this CTA where nothing is multicast
__device__ __forceinline__ void ring_release(uint32_t addr) {
#if MCAST && CM * CN > 1
  mbar_arrive_remote(addr);
#else
  mbar_arrive(addr);
#endif
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
// K-major operand, rows of P bytes with a P-byte swizzle (P = 128 or 64)
template <int P>
__device__ __forceinline__ uint64_t mk_desc(uint32_t addr) {
  return (uint64_t)((addr & 0x3FFFFu) >> 4) | (1ull << 16) | ((uint64_t)(P / 2) << 32) | ((P == 128 ? 1ull : 2ull) << 62);
}
__device__ __forceinline__ void tma_2d(uint32_t dst, const void* map, int c0, int c1, uint32_t bar, uint64_t pol) {
#if LHINT
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], "
      "%5;" ::"r"(dst),
      "l"(map), "r"(c0), "r"(c1), "r"(bar), "l"(pol)
      : "memory");
#else
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
      "l"(map), "r"(c0), "r"(c1), "r"(bar)
      : "memory");
#endif
}
__device__ __forceinline__ void tma_2d_mc(uint32_t dst, const void* map, int c0, int c1, uint32_t bar, uint16_t mask, uint64_t pol) {
#if LHINT
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%2, "
      "%3}], [%4], %5, %6;" ::"r"(dst),
      "l"(map), "r"(c0), "r"(c1), "r"(bar), "h"(mask), "l"(pol)
      : "memory");
#else
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
      "[%4], %5;" ::"r"(dst),
      "l"(map), "r"(c0), "r"(c1), "r"(bar), "h"(mask)
      : "memory");
#endif
}
// fills a zeroed 128-byte tensor map in shared memory: 2-D, 16-bit elements, [rows][4096], box box_rows x box_cols, swizzle mode SWZ
template <int SWZ>
__device__ __forceinline__ void build_map(uint32_t s, const void* g, uint32_t rows, uint32_t box_cols, uint32_t box_rows) {
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(s), "l"((uint64_t)g) : "memory");
  asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], %1;" ::"r"(s), "r"(1) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(s), "r"(box_cols) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(s), "r"(box_rows) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(s), "r"(GK) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(s), "r"(rows) : "memory");
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(s), "l"((uint64_t)(GK * 2)) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(s), "r"(1) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(s), "r"(1) : "memory");
  asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 1;" ::"r"(s) : "memory");
  asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"r"(s) : "memory");
  asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], %1;" ::"r"(s), "n"(SWZ) : "memory");
  asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(s) : "memory");
}
__device__ __forceinline__ void publish_map(void* g, uint32_t s) {
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(g), "r"(s)
               : "memory");
}
__device__ __forceinline__ void acquire_map(const void* g) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(g) : "memory");
}

#define F8(o) "+f"(d[o]), "+f"(d[o + 1]), "+f"(d[o + 2]), "+f"(d[o + 3]), "+f"(d[o + 4]), "+f"(d[o + 5]), "+f"(d[o + 6]), "+f"(d[o + 7])
#define F32(o) F8(o), F8(o + 8), F8(o + 16), F8(o + 24)

__device__ __forceinline__ void wgmma_ss(float (&d)[16], uint64_t da, uint64_t db, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, p, 1, 1, 0, 0;\n"
      "}\n"
      : F8(0), F8(8)
      : "l"(da), "l"(db), "r"(acc)
      : "memory");
}
__device__ __forceinline__ void wgmma_ss(float (&d)[32], uint64_t da, uint64_t db, int acc) {
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
__device__ __forceinline__ void wgmma_ss(float (&d)[64], uint64_t da, uint64_t db, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : F32(0), F32(32)
      : "l"(da), "l"(db), "r"(acc)
      : "memory");
}
__device__ __forceinline__ void wgmma_ss(float (&d)[128], uint64_t da, uint64_t db, int acc) {
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
__device__ __forceinline__ void store16(uint4* p, uint4 v) {
#if EPI == 0
  __stcs(p, v);
#else
  *p = v;
#endif
}
__device__ __forceinline__ void tile_coords(int t, int ms, int& row, int& col) {
  const int g = (int)((uint32_t)t / (uint32_t)(GROUP * NT)), r = (int)((uint32_t)t % (uint32_t)(GROUP * NT));
  const int gs = min(GROUP, ms - g * GROUP);
  col = r / gs;
  row = g * GROUP + (r - col * gs);
  if (g & 1) col = NT - 1 - col;
}
// element i of the 16 accumulators that belong to part p of the SSPLIT column parts
__device__ __forceinline__ float part_of(const float (&d)[SN / 2], uint32_t p, int i) {
#if SSPLIT == 1
  return d[i];
#elif SSPLIT == 2
  return p ? d[16 + i] : d[i];
#else
  const float lo = (p & 1) ? d[16 + i] : d[i];
  const float hi = (p & 1) ? d[48 + i] : d[32 + i];
  return (p & 2) ? hi : lo;
#endif
}

__device__ __forceinline__ void small_path(const __nv_bfloat16* __restrict__ A, const __nv_bfloat16* __restrict__ B,
                                           __nv_bfloat16* __restrict__ C, int M, uint32_t base, unsigned char* basep) {
  const int tid = threadIdx.x;
  const uint32_t rank = blockIdx.x % SSPLIT;
  const int cid = (int)(blockIdx.x / SSPLIT);
  const uint32_t bfull = base + OFF_BARS, bempty = bfull + 8 * SSTAGES;
#if SSPLIT > 1
  cluster_arrive();
#endif
  if (tid == 0) {
    for (int s = 0; s < SSTAGES; ++s) {
      mbar_init(bfull + 8 * s, 256);
      mbar_init(bempty + 8 * s, 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
#if SEARLY == 0
  __syncthreads();
#endif
  const int n0 = cid * SN, kbase = (int)rank * SK;
  if (tid >= 128) {
    const int lt = tid - 128;
    const int c = lt % SCPR, r0 = lt / SCPR;
    const uint32_t sw = base + r0 * 128 + (((c & 7) ^ (r0 & 7)) << 4);
    const uint32_t soa = sw + (c >> 3) * 8192, sob = sw + (c >> 3) * (SN * 128) + SA_BYTES;
    const __nv_bfloat16* bp = B + (size_t)(n0 + r0) * GK + kbase + c * 8;
    const __nv_bfloat16* ap[64 / SRP];
    uint32_t asz[64 / SRP];
#pragma unroll
    for (int i = 0; i < 64 / SRP; ++i) {
      const int r = r0 + SRP * i;
      asz[i] = r < M ? 16u : 0u;
      ap[i] = A + (size_t)(r < M ? r : 0) * GK + kbase + c * 8;
    }
#pragma unroll
    for (int it = 0; it < SITERS + SLAG; ++it) {
      if (it < SITERS) {
        const int s = it % SSTAGES;
        if (it >= SSTAGES) mbar_wait(bempty + 8 * s, ((it / SSTAGES) - 1) & 1);
        const int ko = ((it + cid) & (SITERS - 1)) * SBK;
#pragma unroll
        for (int i = 0; i < SN / SRP; ++i)
          asm volatile("cp.async.cg.shared.global" SPF_STR " [%0], [%1], 16;" ::"r"(sob + s * SSTAGE_BYTES + i * (SRP * 128)),
                       "l"(bp + (size_t)i * SRP * GK + ko)
                       : "memory");
#pragma unroll
        for (int i = 0; i < 64 / SRP; ++i)
          asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(soa + s * SSTAGE_BYTES + i * (SRP * 128)),
                       "l"(ap[i] + ko), "r"(asz[i])
                       : "memory");
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
#if SEARLY
      if (it == SLAG) asm volatile("bar.sync 1, 384;" ::: "memory");
#endif
      if (it >= SLAG) {
        asm volatile("cp.async.wait_group %0;" ::"n"(SLAG) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        mbar_arrive(bfull + 8 * ((it - SLAG) % SSTAGES));
      }
    }
#if SSPLIT > 1
    __syncwarp();
    cluster_wait();
    cluster_arrive();
    cluster_wait();
#endif
  } else {
#if SEARLY
    __syncwarp();
    asm volatile("bar.sync 1, 384;" ::: "memory");
#endif
#if SPF == 1
    {
      constexpr int NP = SK / 512;  // 1024-byte pieces of a row's part
      const int p0 = ((cid & (SITERS - 1)) * SBK) / 512;
      for (int i = tid; i < SN * NP; i += 128) {
        const int r = i % SN, p = (i / SN + p0) % NP;
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(B + (size_t)(n0 + r) * GK + kbase + p * 512), "r"(1024) : "memory");
      }
      __syncwarp();
    }
#endif
    float d[SN / 2];
#pragma unroll
    for (int i = 0; i < SN / 2; ++i) d[i] = 0.0f;
#pragma unroll 1
    for (int it = 0; it < SITERS; ++it) {
      const int s = it % SSTAGES;
      mbar_wait(bfull + 8 * s, (it / SSTAGES) & 1);
      const uint64_t da = mk_desc<128>(base + s * SSTAGE_BYTES), db = mk_desc<128>(base + s * SSTAGE_BYTES + SA_BYTES);
      wg_fence();
#pragma unroll
      for (int kk = 0; kk < SBK / 16; ++kk) {
        const int oa = (kk >> 2) * 512 + (kk & 3) * 2;
        const int ob = (kk >> 2) * (SN * 8) + (kk & 3) * 2;
        wgmma_ss(d, da + oa, db + ob, 1);
      }
      wg_commit();
      wg_wait<1>();
      if (it > 0 && tid == 0) mbar_arrive(bempty + 8 * ((it - 1) % SSTAGES));
    }
    wg_wait<0>();
#pragma unroll
    for (int i = 0; i < SN / 2; ++i) asm volatile("" : "+f"(d[i])::"memory");
    __syncwarp();
#if SSPLIT > 1
    cluster_wait();
#pragma unroll
    for (int x = 1; x < SSPLIT; ++x) {
      const uint32_t remote = mapa(base + OFF_RECV + (x - 1) * 8192 + tid * 16, (blockIdx.x % CL) ^ (uint32_t)x);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const float v0 = part_of(d, rank ^ (uint32_t)x, q * 4 + 0);
        const float v1 = part_of(d, rank ^ (uint32_t)x, q * 4 + 1);
        const float v2 = part_of(d, rank ^ (uint32_t)x, q * 4 + 2);
        const float v3 = part_of(d, rank ^ (uint32_t)x, q * 4 + 3);
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(remote + q * 2048), "f"(v0), "f"(v1), "f"(v2), "f"(v3)
                     : "memory");
      }
    }
    cluster_arrive();
    cluster_wait();
#endif
    uint32_t lo[4], hi[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      float v0 = part_of(d, rank, q * 4 + 0);
      float v1 = part_of(d, rank, q * 4 + 1);
      float v2 = part_of(d, rank, q * 4 + 2);
      float v3 = part_of(d, rank, q * 4 + 3);
#pragma unroll
      for (int x = 1; x < SSPLIT; ++x) {
        const float4 p = *reinterpret_cast<const float4*>(basep + OFF_RECV + (x - 1) * 8192 + q * 2048 + tid * 16);
        v0 += p.x;
        v1 += p.y;
        v2 += p.z;
        v3 += p.w;
      }
      lo[q] = pack2(v0, v1);
      hi[q] = pack2(v2, v3);
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

extern "C" __global__ void
#if CM * CN > 1
__cluster_dims__(CM * CN, 1, 1)
#endif
__launch_bounds__(384, 1)
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
  const uint32_t rank = blockIdx.x % CL;
  const uint32_t ci = rank % CM, cj = rank / CM;  // place of the CTA in its cluster, along M and along N
  const int cid = (int)(blockIdx.x / CL);
  const uint32_t bfull = base + OFF_BARS, bempty = bfull + 8 * STAGES;
  unsigned char* mapA = g_tmaps + blockIdx.x * (NMAPS * 128);
  unsigned char* mapB = mapA + 128;
#if EPI >= 2
  unsigned char* mapC = mapA + 256;
#endif

  if (warp == 0) {
    const uint32_t sm = base + OFF_MAPS;
    uint32_t* z = reinterpret_cast<uint32_t*>(basep + OFF_MAPS);
#pragma unroll
    for (int i = 0; i < NMAPS; ++i) z[lane + 32 * i] = 0;
    __syncwarp();
    if (lane == 0) {
      build_map<(BK == 64 ? 3 : 2)>(sm, A, (uint32_t)M, BK, BOX_A);
      build_map<(BK == 64 ? 3 : 2)>(sm + 128, B, GN, BK, BOX_B);
#if EPI >= 2
      build_map<3>(sm + 256, C, (uint32_t)M, 64, 16);
#endif
    }
    __syncwarp();
    publish_map(mapA, sm);
    publish_map(mapB, sm + 128);
#if EPI >= 2
    publish_map(mapC, sm + 256);
#endif
    __syncwarp();
  } else if (warp == 1) {
    if (lane == 0) {
      for (int s = 0; s < STAGES; ++s) {
        mbar_init(bfull + 8 * s, 1);
        mbar_init(bempty + 8 * s, 2 * NSIG);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
  }
  __syncthreads();
  cluster_arrive();
  cluster_wait();

  const int ms = (int)((uint32_t)(M + TM - 1) / (uint32_t)TM);
  const int total = ms * NT;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == 0 && lane == 0) {
      acquire_map(mapA);
      acquire_map(mapB);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      uint32_t st = 0, ph = 1;
#if KROT > 1
      const int rot = (cid & (KROT - 1)) * (GK / KROT);
#endif
#if MCA
      uint32_t mask_a = 0;  // the CTAs with the same rows
#pragma unroll
      for (int j = 0; j < CN; ++j) mask_a |= 1u << (CM * j);
      mask_a <<= ci;
#endif
#if MCB
      const uint32_t mask_b = ((1u << CM) - 1u) << (CM * cj);  // the CTAs with the same columns
#endif
      for (int t = cid; t < total; t += NCL) {
        int row, col;
        tile_coords(t, ms, row, col);
        const int m0 = row * TM + (int)ci * BM + (MCA ? (int)cj * BOX_A : 0);
        const int nb = col * TN + (int)cj * BN + (MCB ? (int)ci * BOX_B : 0);
#pragma unroll 1
        for (int k0 = 0; k0 < GK; k0 += BK) {
#if KROT > 1
          const int k = (k0 + rot) & (GK - 1);
#else
          const int k = k0;
#endif
          mbar_wait(bempty + 8 * st, ph);
          const uint32_t full = bfull + 8 * st;
          const uint32_t sa = base + st * STAGE_BYTES;
          mbar_expect(full, STAGE_BYTES);
#if MCA
          tma_2d_mc(sa + cj * (BOX_A * PITCH), mapA, k, m0, full, (uint16_t)mask_a, POL_A);
#else
          tma_2d(sa, mapA, k, m0, full, POL_A);
#endif
#if MCB
          tma_2d_mc(sa + A_BYTES + ci * (BOX_B * PITCH), mapB, k, nb, full, (uint16_t)mask_b, POL_B);
#else
          tma_2d(sa + A_BYTES, mapB, k, nb, full, POL_B);
#endif
          if (++st == STAGES) { st = 0; ph ^= 1; }
        }
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int cw = wg - 1;
    const int tw = tid & 127;
    const uint32_t ww = (uint32_t)(tw >> 5);
    const bool signal = (lane == 0) & (ww < NSIG);  // one lane of each of the first warps releases the stage in one CTA
#if MCAST && CM * CN > 1
    // the CTAs that share this CTA's B tile (itself among them), then the others that share its A tile
    uint32_t target = (ww & (CM - 1)) + CM * cj;
#if CN > 1
    if (ww >= CM) {
      const uint32_t j = ww - CM;
      target = ci + CM * ((j + (j >= cj ? 1u : 0u)) & (CN - 1));
    }
#endif
    const uint32_t rempty = mapa(bempty, target);
#else
    const uint32_t rempty = bempty;
#endif
    const uint64_t da0 = mk_desc<PITCH>(base + cw * (64 * MT * PITCH)), db0 = mk_desc<PITCH>(base + A_BYTES);
    uint32_t st = 0, ph = 0;
#if EPI >= 2
    if (lane == 0) acquire_map(mapC);
    __syncwarp();
    const uint32_t ebuf = base + OFF_EPI + (uint32_t)(warp - 4) * (NBUF * 2048);
    const uint32_t erow = ebuf + (lane & 15) * 128;
#else
    const bool b0 = lane & 1, b1 = lane & 2;
#endif
    float d[MT][BN / 2];
#pragma unroll
    for (int mt = 0; mt < MT; ++mt)
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) d[mt][i] = 0.0f;
    for (int t = cid; t < total; t += NCL) {
      uint32_t prev = 0;
#pragma unroll 1
      for (int k = 0; k < NK; k += KU) {
#pragma unroll
        for (int u = 0; u < KU; ++u) {
          const uint32_t cs = UNROLL ? (uint32_t)u : st;
          mbar_wait(bfull + 8 * cs, ph);
          const uint64_t da = da0 + cs * (STAGE_BYTES >> 4), db = db0 + cs * (STAGE_BYTES >> 4);
          wg_fence();
#pragma unroll
          for (int kk = 0; kk < BK / 16; ++kk)
#pragma unroll
            for (int mt = 0; mt < MT; ++mt)
              wgmma_ss(d[mt], da + mt * (64 * PITCH / 16) + kk * 2, db + kk * 2, kk == 0 ? k + u : 1);
          wg_commit();
          wg_wait<WAITN>();
#if WAITN
          if (k + u > 0 && signal) ring_release(rempty + 8 * (UNROLL ? (uint32_t)((u + STAGES - 1) % STAGES) : prev));
          prev = cs;
#else
          if (signal) ring_release(rempty + 8 * cs);
#endif
#if !UNROLL
          if (++st == STAGES) { st = 0; ph ^= 1; }
#endif
        }
#if UNROLL
        ph ^= 1;
#endif
      }
      wg_wait<0>();
#pragma unroll
      for (int mt = 0; mt < MT; ++mt)
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) asm volatile("" : "+f"(d[mt][i])::"memory");
#if WAITN
      if (signal) ring_release(rempty + 8 * prev);
#endif
      __syncwarp();

      int row, col;
      tile_coords(t, ms, row, col);
#if EPI >= 2
      const int r = row * TM + (int)ci * BM + cw * (64 * MT) + (warp & 3) * 16;
      const int c0 = col * TN + (int)cj * BN;
#pragma unroll
      for (int ch = 0; ch < NCH; ++ch) {
        const int mt = ch / (BN / 64), cb = ch % (BN / 64);
        const uint32_t off = (uint32_t)(ch % NBUF) * 2048;
        if (lane == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(NBUF - 1) : "memory");
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int o = cb * 32 + j * 8;
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                           erow + off + (uint32_t)(((2 * j + (lane >> 4)) ^ (lane & 7)) << 4)),
                       "r"(pack2(d[mt][o + 0], d[mt][o + 1])), "r"(pack2(d[mt][o + 2], d[mt][o + 3])),
                       "r"(pack2(d[mt][o + 4], d[mt][o + 5])), "r"(pack2(d[mt][o + 6], d[mt][o + 7]))
                       : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) {
          asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;" ::"l"(mapC),
                       "r"(c0 + cb * 64), "r"(r + mt * 64), "r"(ebuf + off), "l"(POL_FIRST)
                       : "memory");
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
      }
      __syncwarp();
#else
#pragma unroll
      for (int mt = 0; mt < MT; ++mt) {
        const int r = row * TM + (int)ci * BM + cw * (64 * MT) + mt * 64 + (warp & 3) * 16 + (lane >> 2);
        __nv_bfloat16* cp = C + (size_t)r * GN + col * TN + (int)cj * BN + (lane & 3) * 8;
        const bool ok0 = r < M, ok1 = r + 8 < M;
#pragma unroll
        for (int jb = 0; jb < BN / 32; ++jb) {
          const int o = jb * 16;
          const uint4 y0 = quad_transpose(pack2(d[mt][o + 0], d[mt][o + 1]), pack2(d[mt][o + 4], d[mt][o + 5]),
                                          pack2(d[mt][o + 8], d[mt][o + 9]), pack2(d[mt][o + 12], d[mt][o + 13]), b0, b1);
          const uint4 y1 = quad_transpose(pack2(d[mt][o + 2], d[mt][o + 3]), pack2(d[mt][o + 6], d[mt][o + 7]),
                                          pack2(d[mt][o + 10], d[mt][o + 11]), pack2(d[mt][o + 14], d[mt][o + 15]), b0, b1);
          if (ok0) store16(reinterpret_cast<uint4*>(cp + jb * 32), y0);
          if (ok1) store16(reinterpret_cast<uint4*>(cp + 8 * GN + jb * 32), y1);
        }
      }
#endif
    }
#if EPI >= 2
    if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
    __syncwarp();
  }
  cluster_arrive();
  cluster_wait();
}
