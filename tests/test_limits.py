"""Architectures by name, and occupancy against NVIDIA's calculator (its rules, worked out by hand in the comments)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tunesmith.errors import UsageError
from tunesmith.limits import ARCHITECTURES, FACTS, named, occupancy

H100, A100, RTX, T4, V100 = (named(a) for a in ("sm_90", "sm_80", "sm_86", "sm_75", "sm_70"))
KB = 1024


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "blocks", "limited_by"),
    [
        (256, 32, 0, 8, "threads"),  # 2048 / 256; 64 warps · 1024 registers fill the file, too
        (1024, 32, 0, 2, "threads"),
        (32, 16, 0, 32, "blocks"),
        (256, 255, 0, 1, "registers"),  # 8192 per warp: two to a scheduler, 8 warps in all
        (256, 128, 0, 2, "registers"),  # 4096 per warp: 16 warps
        (256, 33, 0, 6, "registers"),  # 1056, given out as 1280: 12 to a scheduler, 48 warps
        (1024, 64, 0, 1, "registers"),
        (1024, 65, 0, 0, "registers"),  # 2304 per warp: 28 warps, and the block wants 32
        (96, 168, 0, 4, "registers"),  # 5376 per warp: three to a scheduler, 12 warps of 65536/5376 = 12.19
        (128, 0, 100 * KB, 2, "shared memory"),  # 228 KB / 101
        (128, 32, 227 * KB, 1, "shared memory"),
        (128, 32, 0, 16, "threads"),
        (33, 32, 0, 32, "blocks"),  # two warps: 2048 / 64 = 32 as well
        (1, 1, 0, 32, "blocks"),
    ],
)
def test_blocks_on_an_h100(threads: int, registers: int, shared_bytes: int, blocks: int, limited_by: str) -> None:
    found = occupancy(H100, threads, registers, shared_bytes)
    assert found.blocks == blocks
    assert found.fraction == blocks * -(-threads // 32) / 64
    if (threads, registers) not in ((33, 32),):  # there two limits bind at once
        assert found.limited_by == limited_by


@pytest.mark.parametrize(
    ("limits", "shared_kb", "blocks"),
    [
        (H100, 0, 16),
        (H100, 56, 4),  # 57 KB with the driver's: four make exactly 228
        (H100, 57, 3),
        (A100, 40, 4),  # 164 / 41
        (A100, 163, 1),
        (RTX, 49, 2),  # 100 / 50
        (RTX, 50, 1),
        (T4, 32, 2),  # before sm_80 nothing is kept back
        (T4, 64, 1),
        (V100, 96, 1),
        (V100, 48, 2),
    ],
)
def test_shared_memory_and_what_the_driver_keeps_of_it(limits: object, shared_kb: int, blocks: int) -> None:
    assert occupancy(limits, 128, 16, shared_kb * KB).blocks == blocks  # type: ignore[arg-type]


def test_an_odd_byte_of_shared_memory_takes_a_whole_granule() -> None:
    assert occupancy(H100, 64, 16, 6 * KB).blocks == 32  # 7 KB each: 32.6
    assert occupancy(H100, 64, 16, 6 * KB + 129).blocks == 31  # 7 KB and two granules of 128


def test_architectures_differ_in_threads_and_blocks() -> None:
    assert [occupancy(x, 256, 32, 0).blocks for x in (H100, A100, RTX, T4)] == [8, 8, 6, 4]
    assert [occupancy(x, 32, 16, 0).blocks for x in (H100, A100, RTX, T4)] == [32, 32, 16, 16]


def test_every_architecture_runs_its_largest_block() -> None:
    for limits in ARCHITECTURES.values():
        assert occupancy(limits, limits.max_threads, 32, 0).blocks >= 1
        assert occupancy(limits, 32, 32, limits.max_shared_bytes).blocks == 1
        assert occupancy(limits, 32, limits.max_registers, 0).blocks >= 1


def test_where_there_is_no_such_notion() -> None:
    cpu = replace(H100, arch="opencl-cpu", max_threads_per_sm=0)
    assert occupancy(cpu, 256, 0, 0).limited_by == "unknown"
    assert occupancy(H100, 0, 32, 0).blocks == 0


def test_names_of_architectures() -> None:
    assert named("sm_90a") is named("sm_90")
    assert named("sm_100f").name == "B200"
    with pytest.raises(UsageError, match=r"unknown architecture 'sm_91'; known: sm_100, sm_120"):
        named("sm_91")


def test_facts_are_those_that_expressions_may_name() -> None:
    facts = H100.facts()
    assert tuple(facts) == FACTS
    assert (facts["sms"], facts["max_shared_bytes"], facts["registers"], facts["warp"]) == (132, 227 * KB, 65536, 32)
