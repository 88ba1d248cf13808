"""The target and what is not possible, for tasks and calibrations made up for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunesmith.calibrate import Calibration, Peak
from tunesmith.errors import TaskError
from tunesmith.evaluate import Evaluator
from tunesmith.limits import named
from tunesmith.target import amount, peak_us, target_us
from tunesmith.task import Input, Output, Scalar, Task, Workload, dynamic, note, static
from tunesmith.trial import Cell, Status, Timing

SUITE = Path(__file__).parent.parent / "suite"
KNOWN = Calibration(
    {},
    copy_us=((1000, 1.0), (1_000_000, 1000.0)),  # a thousandth of a microsecond per byte
    warm_copy_us=((1000, 0.5), (1_000_000, 250.0)),
    peaks={"f32": Peak(1e12, "fma"), "bf16": Peak(1e13, "mma")},
)


def a_task(
    x: dict[str, Any] | None = None, kinds: tuple[str, ...] = ("f32", "bf16", "f64", "e4m3"), **more: Any
) -> Task:
    given: dict[str, Any] = {"bytes_moved": "2*T*d*sizeof(io)", "flops": "0", **more}
    return Task(
        "made-up",
        dims={"T": dynamic, "d": static, "pairs": note},
        types={"io": kinds},
        arguments=[
            Input("x", "io[T, d]", **(x or {})),
            Output("out", "io[T, d]"),
            Scalar("eps", "f32", values=1e-6),
        ],
        workloads=[Workload("one", T=10, d=100, io=kinds[0], pairs=7)],
        **given,
    )


def at(io: str = "f32") -> Workload:
    return Workload("one", T=10, d=100, io=io, pairs=7)


# --- bytes and flops ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("2*T*d*sizeof(io)", 8000),
        ("T*d*sizeof(x) + pairs*sizeof(bf16)", 4014),
        ("T*stride(x, 0)", 1000),
        ("T*d/3", 1000 / 3),
        ("-5", 0),
    ],
)
def test_bytes_are_an_expression_over_dims_and_types(text: str, bytes_: float) -> None:
    assert amount(a_task(bytes_moved=text), at(), "bytes_moved") == pytest.approx(bytes_)


def test_sizes_follow_the_workloads_types() -> None:
    task = a_task(bytes_moved="T*d*sizeof(io)")
    assert [amount(task, at(io), "bytes_moved") for io in ("f64", "f32", "bf16", "e4m3")] == [8000, 4000, 2000, 1000]


@pytest.mark.parametrize("text", ["T // (d - 100)", "stride(x, 2)", "aligned(x, 16)"])
def test_bytes_without_a_value_are_the_tasks_mistake(text: str) -> None:
    with pytest.raises(TaskError, match=r"task made-up, workload one: bytes_moved = "):
        amount(a_task(bytes_moved=text), at(), "bytes_moved")


@pytest.mark.parametrize("folder", sorted(p.parent for p in SUITE.glob("*/task.py")), ids=lambda p: p.name)
def test_every_workload_of_the_suite_has_a_target(folder: Path) -> None:
    task = Task.load(folder)
    for workload in (*task.workloads, *task.held_out):
        assert (target_us(task, workload, KNOWN) or 0) > 0


# --- the target --------------------------------------------------------------------------------------------------------


def test_a_memory_bound_task_is_a_copy_of_its_bytes() -> None:
    assert target_us(a_task(), at(), KNOWN) == pytest.approx(8.0)
    assert target_us(a_task(flops="T"), at(), KNOWN) == pytest.approx(8.0)


@pytest.mark.parametrize(("io", "us"), [("f32", 200.0), ("bf16", 20.0)])
def test_a_compute_bound_task_is_its_flops_at_the_rate_of_its_type(io: str, us: float) -> None:
    assert target_us(a_task(flops="200000*T*d"), at(io), KNOWN) == pytest.approx(us)


@pytest.mark.parametrize("io", ["f64", "e4m3"])
def test_a_type_whose_rate_is_not_known_leaves_the_bytes(io: str) -> None:
    assert target_us(a_task(flops="200000*T*d", bytes_moved="1000"), at(io), KNOWN) == pytest.approx(1.0)


def test_without_bytes_and_flops_there_is_no_target() -> None:
    assert target_us(a_task(bytes_moved="0"), at(), KNOWN) is None


def test_what_is_in_cache_is_copied_from_there() -> None:
    task = a_task({"residency": "warm"})
    half_warm = target_us(task, at(), KNOWN)
    warm, cold = (KNOWN.copy_time_us(8000, warm=w) for w in (True, False))
    assert warm < cold
    assert half_warm == pytest.approx((warm + cold) / 2)


# --- what is not possible ----------------------------------------------------------------------------------------------


def test_the_floor_is_what_the_pins_carry_less_a_margin() -> None:
    assert peak_us(a_task(), at(), 1e9) == pytest.approx(8.0 * 0.95)
    assert peak_us(a_task(), at(), 1e9, kept_bytes=4000) == pytest.approx(4.0 * 0.95)


def test_where_nothing_is_known_nothing_is_impossible() -> None:
    assert peak_us(a_task(), at(), None) is None
    assert peak_us(a_task(bytes_moved="0"), at(), 1e9) is None
    assert peak_us(a_task(), at(), 1e9, kept_bytes=1e6) is None
    assert peak_us(a_task({"residency": "warm"}), at(), 1e9) is None


@pytest.fixture
def evaluator() -> Evaluator:
    """As much of one as stands beside the lines."""
    made: Any = object.__new__(Evaluator)
    made.task, made.limits, made.calibration = a_task(), named("sm_90"), KNOWN
    made.device = SimpleNamespace(facts={"peak_bytes_per_s": 1e9})
    found: Evaluator = made
    return found


def cell(us: float) -> Cell:
    return Cell("one", timing=Timing(us, us, us))


def test_a_cell_says_how_near_the_target_it_is(evaluator: Evaluator) -> None:
    found = evaluator._beside_the_lines(cell(10.0), at(), launches=1 << 40)
    assert found.status is Status.OK
    assert found.target_fraction == pytest.approx(0.8)


def test_faster_than_the_memory_is_investigated_not_celebrated(evaluator: Evaluator) -> None:
    found = evaluator._beside_the_lines(cell(7.0), at(), launches=1 << 40)
    assert found.status is Status.IMPOSSIBLE
    assert "7.00 µs" in found.reason
    assert "7.60" in found.reason
    assert found.target_fraction is None


def test_what_the_cache_may_keep_is_not_held_against_it(evaluator: Evaluator) -> None:
    assert evaluator._beside_the_lines(cell(1.0), at(), launches=2).status is Status.OK


def test_without_a_calibration_there_is_no_fraction(evaluator: Evaluator) -> None:
    evaluator.calibration = None
    assert evaluator._beside_the_lines(cell(10.0), at(), launches=2).target_fraction is None
