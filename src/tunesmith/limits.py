"""What a device allows, as a plain record: given by a device, or by the name of an architecture standing for its usual
full chip. Knows nothing of kernels; `occupancy` is the one calculation that belongs here. Limits never decide what is
*legal* in a template; they are reported apart, as `over_limits`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith.errors import UsageError, unknown


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one device. Bytes in bytes; `max_shared_bytes` is per block, after opting in."""

    arch: str  # sm_90, or opencl-cpu
    name: str
    sms: int
    warp: int
    max_threads: int  # per block
    max_block: tuple[int, int, int]
    max_grid: tuple[int, int, int]
    max_shared_bytes: int
    shared_bytes_per_sm: int
    registers: int  # per SM; 0 where the notion does not exist
    max_registers: int  # per thread
    max_threads_per_sm: int
    max_blocks_per_sm: int
    max_cluster: int  # the portable size in blocks; 1 where there are no clusters
    l2_bytes: int

    @property
    def largest_cluster(self) -> int:
        """Of one launch. Where there are clusters a kernel may opt in to twice the portable size: 16 blocks, not 8, on sm_90."""
        return 2 * self.max_cluster if self.max_cluster > 1 else 1

    def facts(self) -> dict[str, int]:
        """The names under which expressions may ask for them."""
        return {name: getattr(self, name) for name in FACTS}


FACTS = ("sms", "max_threads", "max_shared_bytes", "registers", "warp", "l2_bytes")

KB = 1024
_GRID = (2**31 - 1, 65535, 65535)


def _cuda(arch: str, name: str, sms: int, shared_kb: int, opt_in_kb: int, threads: int, blocks: int, l2_mb: int,
          cluster: int = 1) -> Limits:  # fmt: skip
    return Limits(
        arch=arch, name=name, sms=sms, warp=32, max_threads=1024, max_block=(1024, 1024, 64), max_grid=_GRID,
        max_shared_bytes=opt_in_kb * KB, shared_bytes_per_sm=shared_kb * KB, registers=65536, max_registers=255,
        max_threads_per_sm=threads, max_blocks_per_sm=blocks, max_cluster=cluster, l2_bytes=l2_mb * KB * KB,
    )  # fmt: skip


# The full chip that an architecture's name stands for (CUDA C++ programming guide, "compute capabilities").
ARCHITECTURES = {
    limits.arch: limits
    for limits in (
        _cuda("sm_70", "V100", 80, 96, 96, 2048, 32, 6),
        _cuda("sm_75", "T4", 40, 64, 64, 1024, 16, 4),
        _cuda("sm_80", "A100", 108, 164, 163, 2048, 32, 40),
        _cuda("sm_86", "RTX 3090", 82, 100, 99, 1536, 16, 6),
        _cuda("sm_89", "RTX 4090", 128, 100, 99, 1536, 24, 72),
        _cuda("sm_90", "H100/H200 SXM", 132, 228, 227, 2048, 32, 50, cluster=8),
        _cuda("sm_100", "B200", 148, 228, 227, 2048, 32, 126, cluster=8),
        _cuda("sm_120", "RTX 5090", 170, 100, 99, 1536, 24, 96, cluster=8),
    )
}


def named(arch: str) -> Limits:
    """The limits that an architecture's name stands for; `sm_90a` is `sm_90`."""
    base = arch.removesuffix("a").removesuffix("f")
    if base not in ARCHITECTURES:
        raise UsageError(unknown("architecture", arch, ARCHITECTURES))
    return ARCHITECTURES[base]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many blocks fit on one SM, and which limit binds: threads, blocks, registers or shared memory."""

    blocks: int
    fraction: float
    limited_by: str


def occupancy(limits: Limits, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Blocks of `threads` that are resident on one SM at once (registers are given out in units of 256 per warp)."""
    if threads < 1 or not limits.max_threads_per_sm:
        return Occupancy(0, 0.0, "unknown")
    warps = -(-threads // limits.warp)
    fits = {
        "threads": limits.max_threads_per_sm // (warps * limits.warp),
        "blocks": limits.max_blocks_per_sm,
        "registers": limits.max_blocks_per_sm,
        "shared memory": limits.max_blocks_per_sm,
    }
    if registers and limits.registers:
        per_warp = -(-registers * limits.warp // 256) * 256
        # warps are given to four schedulers, each with a quarter of the registers
        fits["registers"] = (limits.registers // 4 // per_warp) * 4 // warps
    if limits.shared_bytes_per_sm:
        # from sm_80 on the driver keeps 1 KB per block: what a block may never have of a whole SM
        reserved = limits.shared_bytes_per_sm - limits.max_shared_bytes
        if share := -(-(shared_bytes + reserved) // 128) * 128:
            fits["shared memory"] = limits.shared_bytes_per_sm // share
    limited_by = min(fits, key=lambda what: fits[what])
    blocks = fits[limited_by]
    return Occupancy(blocks, blocks * warps * limits.warp / limits.max_threads_per_sm, limited_by)
