"""The gates that need no device: arguments against the binary, launches against the device's limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunesmith.build import Kernel
from tunesmith.dtype import dtype
from tunesmith.gates import arguments_match, first_reason, fits, target_arch
from tunesmith.launch import Drawn, Local, Number, Pointer, ResolvedLaunch
from tunesmith.limits import named

SM90 = named("sm_90")
I32, I64, F32 = dtype("i32"), dtype("i64"), dtype("f32")


def launch(**changes: Any) -> ResolvedLaunch:
    return replace(ResolvedLaunch("k", (1, 1, 1), (128, 1, 1), (Pointer("x"), Number(I32, 7))), **changes)


KERNEL = Kernel("k", "k", registers=32, parameters=(8, 4))


def test_what_matches_passes() -> None:
    assert arguments_match(launch(), KERNEL) is None
    assert arguments_match(launch(args=(Pointer("x"), Drawn(F32, "eps"))), KERNEL) is None
    assert arguments_match(launch(args=(Local(64), Pointer("x"))), replace(KERNEL, parameters=(0, 8))) is None
    assert first_reason([launch()], [KERNEL], SM90) is None


@pytest.mark.parametrize(
    ("args", "parameters", "says"),
    [
        ((Pointer("x"),), (8, 4), "args passes 1 arguments; the kernel k takes 2"),
        ((Pointer("x"), Number(I32, 1), Number(I32, 1)), (8, 4), "args passes 3"),
        ((Number(I32, 1), Pointer("x")), (8, 4), "a number of 4 bytes as parameter 0 of k, which takes 8; write i64"),
        ((Pointer("x"), Number(I64, 1)), (8, 4), "a number of 8 bytes as parameter 1"),
        ((Pointer("x"), Drawn(F32, "eps")), (8, 8), "a number of 4 bytes as parameter 1 of k, which takes 8"),
        ((Pointer("x"), Pointer("y")), (8, 4), "a pointer of 8 bytes as parameter 1"),
        ((Pointer("x"), Local(64)), (8, 8), "local memory of 0 bytes as parameter 1"),
        ((Pointer("x"), Pointer("y")), (8, 0), "a pointer of 8 bytes as parameter 1 of k, which takes 0"),
        ((Pointer("x"), Number(I32, 1)), (8, 64), "a struct of 64 bytes; a struct by value is not supported"),
        ((Pointer("x"), Number(I32, 1)), (8, -1), "a struct of -1 bytes"),
        ((Pointer("x"), Pointer("y")), (8, "image2d_t"), "parameter 1 of k is an image2d_t; images are not supported"),
        ((Number(I32, 1),), ("sampler_t",), "parameter 0 of k is a sampler_t; samplers are not supported"),
    ],
)
def test_arguments_of_the_wrong_width_number_or_order(args: Any, parameters: Any, says: str) -> None:
    reason = arguments_match(launch(args=args), replace(KERNEL, parameters=parameters))
    assert reason is not None
    assert says in reason
    found = first_reason([launch(args=args)], [replace(KERNEL, parameters=parameters)], SM90)
    assert found == (reason, True)  # a mismatch, not a limit


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"block": (0, 1, 1)}, "has no threads"),
        ({"block": (1025, 1, 1)}, "1025 threads per block; the device allows 1024"),
        ({"block": (1, 1, 128)}, "a block of (1, 1, 128)"),
        ({"grid": (2**31, 1, 1)}, "a grid of (2147483648, 1, 1)"),
        ({"grid": (1, 65536, 1)}, "a grid of (1, 65536, 1)"),
        ({"shared_bytes": 227 * 1024 + 1}, "bytes of shared memory"),
        ({"cluster": (2, 1, 1), "grid": (3, 1, 1)}, "does not hold whole clusters"),
        ({"cluster": (32, 1, 1), "grid": (32, 1, 1)}, "a cluster of 32"),
        ({"cluster": (17, 1, 1), "grid": (17, 1, 1)}, "a cluster of 17; the device allows 16"),
        ({"args": (Pointer("x"), Local(2**30))}, "bytes of shared memory"),
    ],
)
def test_launches_beyond_the_device(changes: dict[str, Any], says: str) -> None:
    reason = fits(launch(**changes), KERNEL, SM90)
    assert reason is not None
    assert says in reason
    if "args" not in changes:
        assert first_reason([launch(**changes)], [KERNEL], SM90) == (reason, False)


def test_what_is_just_inside_fits() -> None:
    for changes in ({"block": (1024, 1, 1)}, {"grid": (2**31 - 1, 65535, 65535)}, {"shared_bytes": 227 * 1024},
                    {"grid": (0, 1, 1)}):  # fmt: skip
        assert fits(launch(**changes), KERNEL, SM90) is None


def test_where_there_are_no_clusters_none_fits() -> None:
    assert fits(launch(cluster=(16, 1, 1), grid=(16, 1, 1)), KERNEL, SM90) is None
    reason = fits(launch(cluster=(2, 1, 1), grid=(2, 1, 1)), KERNEL, replace(SM90, max_cluster=1))
    assert reason == "a cluster of 2; the device allows 1"


def test_static_and_dynamic_shared_memory_count_together() -> None:
    kernel = replace(KERNEL, shared_bytes=200 * 1024)
    assert fits(launch(shared_bytes=27 * 1024), kernel, SM90) is None
    assert fits(launch(shared_bytes=27 * 1024 + 1), kernel, SM90) is not None


def test_registers_are_counted_per_whole_warp() -> None:
    assert fits(launch(block=(1024, 1, 1)), replace(KERNEL, registers=64), SM90) is None
    assert "registers" in str(fits(launch(block=(1024, 1, 1)), replace(KERNEL, registers=65), SM90))


def test_the_second_launch_is_looked_at_too() -> None:
    two = [launch(), launch(block=(2048, 1, 1))]
    assert "2048 threads" in str(first_reason(two, [KERNEL], SM90))


def test_own_features_from_sm_90_on() -> None:
    assert target_arch(SM90) == "sm_90a"
    assert target_arch(named("sm_80")) == "sm_80"
