"""What a checker judges of answers, and whether its judgement is strong enough for the suite's tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripted import COUNT, Launched, ScriptedDevice, candidate, checker, evaluator, linear, linear_task
from tunesmith import front, oracle
from tunesmith.checker import Checker
from tunesmith.data import draw, expected
from tunesmith.messages import Candidate, RunCheck
from tunesmith.mutants import mutants
from tunesmith.process import Died
from tunesmith.review import check_task
from tunesmith.task import Input, Output, Task, Workload, dynamic, static
from tunesmith.tolerance import L2, Close
from tunesmith.trial import Status
from tunesmith.values import DISTRIBUTIONS, Normal, Range

SUITE = Path(__file__).parent.parent / "suite"
TASKS = sorted(f.parent.name for f in SUITE.glob("*/task.py"))


# --- testing the tester ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_every_mutant_of_the_suite_is_caught(name: str) -> None:
    task = Task.load(SUITE / name)
    for workload in (*task.workloads, *task.held_out):
        if workload.on in (None, "cpu"):
            judge = Checker(task, None, 11)  # type: ignore[arg-type]
            found = mutants(judge, workload)
            assert len(found) >= 7
            weak = [f"{m.name} of {m.output}" for m in found if m.caught is False]
            assert not weak, f"{name}, {workload.name}: the check lets through {weak}"


def test_a_weak_check_is_found_out() -> None:
    for tolerance, passes in (
        (Close(c=1e9), "all zeros"),
        (L2(4e-2), "scaled by 1.01"),
        (lambda j: True, "a copy of x"),
    ):
        task = linear_task(arguments=[Input("x", "f32[T, d]"), Output("out", "f32[T, d]", tolerance=tolerance)])
        weak = {m.name for m in mutants(checker(ScriptedDevice({}), task), task.workloads[0]) if m.caught is False}
        assert passes in weak


def test_a_mutant_that_changes_nothing_is_skipped() -> None:
    task = linear_task()
    task.oracle = lambda x: np.zeros_like(x)
    found = {m.name: m.caught for m in mutants(checker(ScriptedDevice({}), task), task.workloads[0])}
    assert found["all zeros"] is None
    assert found["a copy of x"] is True


def test_a_missing_tail_is_one_of_what_is_asked() -> None:
    """Not of the padding behind it, where nothing would change."""
    task = linear_task(arguments=[Input("x", "f32[T, d]"), Output("out", "f32[T, d]", partial=True)])
    task.oracle = lambda x: np.ma.masked_array(2 * x + 1, np.arange(7)[:, None] * np.ones((1, 33)) > 3)
    found = {m.name: m.caught for m in mutants(checker(ScriptedDevice({}), task), task.workloads[0])}
    assert found["a missing tail"] is True
    assert found["one stale tile"] is True


# --- kernels that are wrong --------------------------------------------------------------------------------------------


def zeros(k: Launched) -> None:
    k.floats("out", COUNT)[:] = 0


def constant(k: Launched) -> None:
    k.floats("out", COUNT)[:] = 1


def identity(k: Launched) -> None:
    k.floats("out", COUNT)[:] = k.floats("x", COUNT)


def in_halves(k: Launched) -> None:
    k.floats("out", COUNT)[:] = (2 * k.floats("x", COUNT).astype(np.float16) + 1).astype(np.float32)


@pytest.mark.parametrize("script", [zeros, constant, identity, in_halves])
def test_wrong_numbers(script: Any) -> None:
    task = linear_task()
    found = checker(ScriptedDevice({"linear": script}), task).run(candidate(), task.workloads[0])
    assert found.status is Status.WRONG
    assert "elements off" in found.reason


def test_nearly_the_identity_on_normal_numbers_is_found_by_the_other_distributions() -> None:
    """relu(x + 6) - 6 is x on N(0, 1); "scaled" and "outliers" leave that range."""
    task = linear_task()
    task.oracle = lambda x: np.maximum(x + 6, 0) - 6
    device = ScriptedDevice({"linear": identity})
    judge, workload = checker(device, task), task.workloads[0]
    assert judge.run(candidate(), workload).status is Status.OK  # the screen
    found = judge.verify(candidate(), workload)
    assert found.status is Status.WRONG
    assert found.distribution in ("scaled", "outliers")


def test_a_hard_coded_shape_fails_where_it_was_not_written_for() -> None:
    task = linear_task(held_out=[Workload("prime", T=5, d=31)])
    judge = checker(ScriptedDevice({"linear": linear}), task)
    assert judge.verify(candidate(), task.workloads[0]).status is Status.OK
    found = judge.verify(candidate(), task.held_out[0])
    assert found.status is Status.WRONG


def test_hard_coded_outputs_do_not_survive_a_new_seed() -> None:
    task = linear_task()
    stored: list[Any] = []

    def script(k: Launched) -> None:
        if not stored:
            stored.append(2 * np.array(k.floats("x", COUNT)) + 1)
        k.floats("out", COUNT)[:] = stored[0]

    judge = checker(ScriptedDevice({"linear": script}), task)
    assert judge.run(candidate(), task.workloads[0]).status is Status.OK
    assert judge.run(candidate(), task.workloads[0], content=7).status is Status.WRONG


def test_every_distribution_is_tried_and_the_first_failure_named() -> None:
    task = linear_task()
    for index, distribution in enumerate(DISTRIBUTIONS[:6]):
        bad = draw(task, task.workloads[0], 3007, distribution)["x"]

        def script(k: Launched, bad: Any = bad) -> None:
            linear(k)
            if np.array_equal(k.floats("x", COUNT), bad.reshape(-1)):
                k.floats("out", 1)[0] += 1

        found = checker(ScriptedDevice({"linear": script}), task).verify(candidate(), task.workloads[0])
        assert (found.status, found.distribution) == (Status.WRONG, distribution), index


def test_only_some_rows_of_a_large_output_meet_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest are compared with the baseline on the device's own data: a wrong row outside the sample is found there."""
    monkeypatch.setattr(oracle, "LARGE", 10)
    monkeypatch.setattr(oracle, "SAMPLED_ROWS", 4)
    task = linear_task()
    workload = task.workloads[0]
    device = ScriptedDevice({"linear": linear})
    judge = checker(device, task)
    rows = judge.oracle.rows(workload)
    assert rows is not None
    assert {0, 6} <= {*rows.tolist()}
    wrong = next(r for r in range(7) if r not in rows)

    def script(k: Launched) -> None:
        linear(k)
        k.floats("out", 33, 33 * wrong)[:] = 0

    baseline = judge.verify(candidate(), workload)
    device.session.scripts["linear"] = script
    assert judge.verify(candidate(), workload).status is Status.OK  # without a baseline nobody could know
    judge.adopt_baseline(baseline, workload, content=7)
    found = judge.verify(candidate(), workload)
    assert found.status is Status.WRONG
    assert "against the baseline" in found.reason


def test_same_bits_asks_for_the_baselines_own() -> None:
    task = linear_task(arguments=[Input("x", "f32[T, d]"), Output("out", "f32[T, d]", tolerance="same_bits")])
    workload = task.workloads[0]
    device = ScriptedDevice({"linear": linear})
    judge = evaluator(device, task)
    assert judge.checker.run(candidate(), workload).status is Status.OK  # a screen: the type's tolerance stands in
    assert "no baseline" in judge.checker.verify(candidate(), workload).reason
    assert judge.checker.verify(candidate(), workload, adopt=True).status is Status.OK
    assert judge.checker.verify(candidate(), workload).status is Status.OK  # on every distribution
    judge.checker.forget_baseline()
    baseline = judge.checker.run(candidate(), workload)
    right = 2 * judge.checker.oracle.inputs(workload, 0)["x"] + 1
    judge.checker.adopt_baseline(type(baseline)("w", "normal", Status.OK, outputs={"out": right}), workload)
    assert judge.checker.run(candidate(), workload).status is Status.OK
    assert judge.time(candidate(), workload).status is Status.OK  # other contents: what the type implies

    def script(k: Launched) -> None:
        linear(k)
        k.floats("out", COUNT)[:] *= np.float32(1 + 2**-23)

    device.session.scripts["linear"] = script
    assert "bits differ" in judge.checker.run(candidate(), workload).reason


# --- deaths and refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [(Died("no answer within 60 s", hung=True), Status.HUNG), (Died("signal SIGSEGV"), Status.CRASHED)],
)
def test_a_death_is_a_status(error: Died, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    task = linear_task()
    device = ScriptedDevice({})

    def dies(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(device, "ask", dies)
    found = checker(device, task).run(candidate(), task.workloads[0])
    assert (found.status, found.reason) == (status, str(error))


@pytest.mark.parametrize(
    ("problem", "status"),
    [("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many", Status.OVER_LIMITS), ("clEnqueue: INVALID_WORK_GROUP_SIZE",
     Status.OVER_LIMITS), ("CUDA_ERROR_OUT_OF_MEMORY: ?", Status.OVER_LIMITS),
     ("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", Status.CRASHED)],
)  # fmt: skip
def test_a_refusal_is_a_status_and_the_context_is_left(
    problem: str, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunesmith.process import Answer

    task = linear_task()
    device = ScriptedDevice({})
    monkeypatch.setattr(device, "ask", lambda *_: Answer({"device_error": problem}))
    assert checker(device, task).run(candidate(), task.workloads[0]).status is status
    assert device.restarts == 1


def test_memory_that_is_not_there_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    task = linear_task()
    device = ScriptedDevice({"linear": linear})

    def no_memory(size: int) -> Any:
        raise MemoryError(f"{size} bytes")

    monkeypatch.setattr(device.session, "allocate", no_memory)
    assert checker(device, task).run(candidate(), task.workloads[0]).status is Status.OVER_LIMITS


# --- the data ----------------------------------------------------------------------------------------------------------


def test_contents_differ_and_are_drawn_again_the_same() -> None:
    task = linear_task()
    workload = task.workloads[0]
    first, again = (checker(ScriptedDevice({}), task).oracle for _ in range(2))
    assert np.array_equal(first.inputs(workload)["x"], again.inputs(workload)["x"])
    assert not np.array_equal(first.inputs(workload)["x"], first.inputs(workload, 1)["x"])


def test_only_elements_that_were_drawn_one_by_one_are_exchanged() -> None:
    task = Task(
        "mixed", dims={"T": dynamic, "d": static},
        arguments=[Input("x", "f32[T, d]"), Input("pos", "i32[T]", values=Range(0, "d - 1")),
                   Input("table", "i32[T]", values=lambda to: np.arange(to.shape[0])),
                   Input("w", "f32[d]", values=Normal(1.0, 0.1)), Output("out", "f32[T, d]")],
        workloads=[Workload("w", T=4, d=8)],
    )  # fmt: skip
    case = checker(ScriptedDevice({}), task).case(task.workloads[0], exact_alignment=False, contents=(0,))
    assert set(case.exchangeable) == {"x", "pos", "w"}


def test_rows_of_the_oracle_are_those_of_the_whole() -> None:
    task = linear_task()
    workload = task.workloads[0]
    inputs = draw(task, workload, 1)
    rows = np.array([0, 3, 6])
    some, whole = expected(task, workload, inputs, rows)["out"], expected(task, workload, inputs)["out"]
    assert np.array_equal(some, whole[rows])


def test_two_checkers_on_one_device_do_not_take_each_others_data() -> None:
    """Same names, other seeds: the second must not be judged on the first one's inputs."""
    device, task = ScriptedDevice({"linear": linear}), linear_task()
    for seed in (1, 2):
        judge = Checker(task, device, seed)  # type: ignore[arg-type]
        found = judge.run(candidate(), task.workloads[0])
        assert found.status is Status.OK, found.reason


def test_a_row_that_the_oracle_does_not_compute_is_compared_with_the_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "LARGE", 100)
    monkeypatch.setattr(oracle, "SAMPLED_ROWS", 8)
    task = linear_task(rows="T", workloads=[Workload("tall", T=300, d=33)])

    def tall(k: Launched) -> None:
        k.floats("out", 300 * 33)[:] = 2 * k.floats("x", 300 * 33) + 1

    judge, workload = checker(ScriptedDevice({"linear": tall}), task), task.workloads[0]
    baseline = judge.run(candidate(), workload, all_rows=True)
    assert baseline.status is Status.OK, baseline.reason
    judge.adopt_baseline(baseline, workload)
    sampled = judge.oracle.rows(workload)
    assert sampled is not None
    row = next(i for i in range(300) if i not in sampled)
    wrong = np.array(baseline.outputs["out"])
    wrong[row, 3] += 1
    verdict, _ = judge.compare({"out": wrong}, workload, "normal", all_rows=True)
    assert not verdict.right
    assert "against the baseline" in verdict.reason


# --- callables whose library is not here -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "absent", "status"),
    [
        ("torch", "torch", "missing"),
        ("cupy", "torch", "missing"),
        ("cupy", "cupy", "missing"),
        ("numpy", "", "ok"),
    ],
)
def test_a_callable_whose_library_is_missing_decides_nothing(
    arrays: str, absent: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == absent else object())
    task = linear_task(folder=tmp_path)
    task.baseline("ready-made", arrays=arrays)(lambda x: 2 * x + 1)
    monkeypatch.setattr("tunesmith.backends.host._baseline", lambda folder, name: task.baselines[name])
    report = check_task(evaluator(ScriptedDevice({}), task), [], timed=False)
    (file,) = report.files
    assert front._file(file)["status"] == status
    assert report.right
    assert not absent or file.reason == f"not here: {absent} is not installed"


# --- batch invariance --------------------------------------------------------------------------------------------------


def of_rows(workload: Workload) -> Candidate:
    """A candidate whose grid is its number of rows."""
    one = candidate()
    return replace(one, launches=tuple(replace(launch, grid=(workload.dims["T"], 1, 1)) for launch in one.launches))


def row_by_row(k: Launched) -> None:
    count = 33 * k.launch.grid[0]
    k.floats("out", count)[:] = 2 * k.floats("x", count) + 1


def verified(script: Any, **changes: Any) -> tuple[ScriptedDevice, Any]:
    task = linear_task(**{"batch_invariant": True, **changes})
    device = ScriptedDevice({"linear": script})
    judge, workload = checker(device, task), task.workloads[0]
    return device, judge.verify(of_rows(workload), workload, of_rows)


def test_rows_with_the_same_bits_at_three_sizes_are_batch_invariant() -> None:
    device, found = verified(row_by_row)
    assert found.status is Status.OK, found.reason
    sizes = [m.candidate.launches[0].grid[0] for m in device.said if isinstance(m, RunCheck)]
    assert set(sizes) == {7, 4, 1}
    assert sizes[-2:] == [1, 4]


@pytest.mark.parametrize("size", [1, 4])
def test_a_row_whose_bits_depend_on_the_number_of_rows_is_wrong_only_where_that_was_ruled_out(size: int) -> None:
    def script(k: Launched) -> None:
        row_by_row(k)
        if k.launch.grid[0] == size:  # another order of summation, say: right within any tolerance
            last = k.floats("out", 33, 33 * (size - 1))
            last[:] = np.nextafter(last, np.float32(np.inf))

    _, found = verified(script)
    assert found.status is Status.WRONG
    assert found.reason == f"batch_invariant, T={size}: 1 of {size} rows of out have other bits than among more rows"
    assert verified(script, batch_invariant=False)[1].status is Status.OK


def test_fewer_rows_are_looked_at_like_any_run() -> None:
    _, found = verified(linear)  # all rows, however many there are
    assert found.status is Status.WRONG
    assert found.reason.startswith("batch_invariant, T=1: wrote outside out")


def test_a_size_that_is_not_served_is_left_out() -> None:
    task = linear_task(batch_invariant=True)
    judge = checker(ScriptedDevice({"linear": linear}), task)
    assert judge.verify(candidate(), task.workloads[0], lambda _: None).status is Status.OK


def test_what_a_partial_output_leaves_open_may_differ() -> None:
    arguments = [Input("x", "f32[T, d]"), Output("out", "f32[T, d]", partial="any")]
    task = linear_task(arguments=arguments, batch_invariant=True)
    task.oracle = lambda x: np.ma.array(2 * x + 1, mask=np.broadcast_to(np.arange(33) == 5, x.shape))

    def script(at: int) -> Any:
        def run(k: Launched) -> None:
            row_by_row(k)
            if k.launch.grid[0] == 4:
                k.floats("out", 1, at)[0] += np.float32(1e-6)

        return run

    for at, status in ((5, Status.OK), (6, Status.WRONG)):
        judge = checker(ScriptedDevice({"linear": script(at)}), task)
        assert judge.verify(of_rows(task.workloads[0]), task.workloads[0], of_rows).status is status
