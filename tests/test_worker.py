"""What the device's process notices, with Python in place of kernels: each exploit beside the same without its gate."""

from __future__ import annotations

import io
import pickle
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scripted import (
    COUNT,
    Launched,
    Script,
    ScriptedDevice,
    candidate,
    checker,
    evaluator,
    linear,
    linear_task,
)
from tunesmith import rotation, worker
from tunesmith.checker import Checker
from tunesmith.data import layouts
from tunesmith.dtype import dtype
from tunesmith.launch import Drawn, Pointer, ResolvedWorkspace
from tunesmith.messages import POISONS, Case, RunCheck, RunTime
from tunesmith.process import Answer
from tunesmith.rotation import Arm, Rotation
from tunesmith.task import InOut, Input, Output, Scalar, Task, Workload, dynamic, static
from tunesmith.trial import Status


@pytest.fixture(autouse=True)
def few_sets_and_the_same_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MAX_SETS", 8)
    for module in (rotation, worker):
        monkeypatch.setattr(module, "LOTS", random.Random(0))


def checked(script: Script, task: Task | None = None, deaf: tuple[str, ...] = (), **how: Any) -> tuple[Status, str]:
    task = task or linear_task()
    device = ScriptedDevice({"linear": script}, deaf=deaf)
    found = checker(device, task).run(candidate(**how), task.workloads[0])
    return found.status, found.reason


def timed(
    script: Script, task: Task | None = None, *, cpu: bool = False, deaf: tuple[str, ...] = (), **how: Any
) -> Any:
    task = task or linear_task()
    device = ScriptedDevice({"linear": script}, cpu=cpu, deaf=deaf)
    return evaluator(device, task).time(candidate(**how), task.workloads[0])


def test_an_honest_kernel_passes() -> None:
    assert checked(linear) == (Status.OK, "")
    for cpu in (False, True):
        cell = timed(linear, cpu=cpu)
        assert (cell.status, cell.reason) == (Status.OK, "")
        assert cell.timing.time_us == 100.0


# --- the check -----------------------------------------------------------------------------------------------------------


def writes_past_the_end(k: Launched) -> None:
    linear(k)
    k.floats("out", 1, COUNT)[0] = 1.0


def writes_before_the_start(k: Launched) -> None:
    linear(k)
    k.floats("out", 1, -1)[0] = 1.0


def writes_beside_an_input(k: Launched) -> None:
    linear(k)
    k.floats("x", 1, COUNT)[0] = 1.0


@pytest.mark.parametrize("script", [writes_past_the_end, writes_before_the_start, writes_beside_an_input])
def test_a_write_outside_a_buffer(script: Script) -> None:
    status, reason = checked(script)
    assert status is Status.WRONG
    assert "wrote outside" in reason
    assert checked(script, deaf=("problems",))[0] is Status.OK  # without the guards it passes


def test_a_write_into_the_gaps_of_a_strided_argument() -> None:
    task = linear_task(arguments=[Input("x", "f32[T, d]", stride="d + 3"), Output("out", "f32[T, d]", stride="d + 3")])

    def rows(k: Launched, extra: int) -> None:
        for row in range(7):
            k.floats("out", 33 + extra, row * 36)[:] = 2 * k.floats("x", 33 + extra, row * 36) + 1

    assert checked(lambda k: rows(k, 0), task)[0] is Status.OK
    status, reason = checked(lambda k: rows(k, 1 if k.launch else 0), task)
    assert status is Status.WRONG
    assert "wrote outside out" in reason


def test_a_write_around_a_workspace() -> None:
    space = ResolvedWorkspace("ws", dtype("f32"), 64, zeroed=False)

    def script(k: Launched) -> None:
        linear(k)
        k.floats("ws", 64)[:] = 0
        k.floats("ws", 1, 64)[0] = 1.0

    status, reason = checked(script, workspaces=[space])
    assert status is Status.WRONG
    assert "outside the workspace ws" in reason
    assert checked(script, workspaces=[space], deaf=("problems",))[0] is Status.OK


def test_a_changed_input() -> None:
    def script(k: Launched) -> None:
        linear(k)
        k.floats("x", 1)[0] = 0

    status, reason = checked(script)
    assert (status, reason) == (Status.WRONG, "the input x was changed")
    assert checked(script, deaf=("problems",))[0] is Status.OK


def test_a_changed_input_is_asked_of_an_in_out_argument() -> None:
    task = linear_task(arguments=[InOut("x", "f32[T, d]")])
    task.oracle = lambda x: {"x": 2 * x + 1}

    def script(k: Launched) -> None:
        k.floats("x", COUNT)[:] = 2 * k.floats("x", COUNT) + 1

    assert checked(script, task)[0] is Status.OK
    assert timed(script, task).status is Status.OK
    assert timed(script, task, cpu=True).status is Status.OK


def test_a_forgotten_tail_is_poison() -> None:
    def script(k: Launched) -> None:
        k.floats("out", COUNT - 1)[:] = 2 * k.floats("x", COUNT - 1) + 1

    status, reason = checked(script)
    assert (status, reason) == (Status.WRONG, f"1 of {COUNT} elements of out are not written")


def test_a_read_of_memory_that_nothing_wrote() -> None:
    """max with what lies behind the end: any negative luck passes, poison of both signs does not."""

    def script(k: Launched) -> None:
        linear(k)
        with np.errstate(all="ignore"):
            beyond = np.fmax(k.floats("x", 1, COUNT)[0], k.floats("x", 1)[0])
        k.floats("out", 1)[0] = 2 * beyond + 1

    status, reason = checked(script)
    assert status is Status.NONDETERMINISTIC
    assert "memory that nothing wrote" in reason
    assert checked(script, deaf=("poison",))[0] is not Status.OK  # judged twice: the second pattern is seen there, too
    task = linear_task(deterministic=False)
    assert checked(script, task)[0] is Status.WRONG


def test_the_second_poison_changes_its_sign_between_distributions() -> None:
    task = linear_task()
    device = ScriptedDevice({"linear": linear})
    checker(device, task).verify(candidate(), task.workloads[0])
    seconds = {m.poisons[1] for m in device.said if isinstance(m, RunCheck)}
    assert len(seconds) == 2
    for byte in seconds:
        assert (np.float32(np.full(4, byte, np.uint8).view(np.float32)[0]) > 0) == (byte == POISONS[1])


def test_a_race_is_a_difference_between_two_runs() -> None:
    def script(k: Launched) -> None:
        linear(k)
        k.state["runs"] = k.state.get("runs", 0) + 1
        out = k.floats("out", 1)
        out[0] = np.nextafter(out[0], np.float32(9 * (-1) ** k.state["runs"]), dtype=np.float32)

    assert checked(script)[0] is Status.NONDETERMINISTIC
    assert checked(script, deaf=("poison",))[0] is Status.OK
    assert checked(script, linear_task(deterministic=False))[0] is Status.OK


def test_a_partial_output_keeps_what_is_not_asked() -> None:
    task = linear_task(arguments=[Input("x", "f32[T, d]"), Output("out", "f32[T, d]", partial=True)])
    task.oracle = lambda x: np.ma.masked_array(2 * x + 1, np.arange(7)[:, None] * np.ones((1, 33)) > 3)

    def script(k: Launched, rows: int) -> None:
        k.floats("out", 33 * rows)[:] = 2 * k.floats("x", 33 * rows) + 1

    assert checked(lambda k: script(k, 4), task)[0] is Status.OK
    assert "must stay as they are" in checked(lambda k: script(k, 5), task)[1]
    assert "not written" in checked(lambda k: script(k, 3), task)[1]


# --- timed launches ----------------------------------------------------------------------------------------------------


def counting(k: Launched) -> None:
    """Right for a while, then idle."""
    k.state["count"] = k.state.get("count", 0) + 1
    if k.state["count"] <= 20:
        linear(k)


def by_pointer(k: Launched) -> None:
    """Does each buffer once."""
    if k.address("out") not in k.state:
        k.state[k.address("out")] = True
        linear(k)


def by_presence(k: Launched) -> None:
    """No state at all: leaves alone what seems done already."""
    if np.isnan(k.floats("out", 1)[0]) or not k.timed:
        linear(k)


def cached_by_pointer(k: Launched) -> None:
    key = k.address("x")
    if key not in k.state:
        linear(k)
        k.state[key] = np.array(k.floats("out", COUNT))
    k.floats("out", COUNT)[:] = k.state[key]


def cached_by_some_contents(k: Launched) -> None:
    key = k.floats("x", 4).tobytes()
    if key not in k.state:
        linear(k)
        k.state[key] = np.array(k.floats("out", COUNT))
    k.floats("out", COUNT)[:] = k.state[key]


def all_in_the_first_call(k: Launched) -> None:
    """Once it has met the buffers, does the work of all launches in one, and nothing in the others."""
    met = k.state.setdefault("met", {})
    met[k.address("out")] = (k.floats("x", COUNT), k.floats("out", COUNT))
    for x, out in met.values() if np.isnan(k.floats("out", 1)[0]) or not k.timed else ():
        out[:] = 2 * x + 1


def half_when_timed(k: Launched) -> None:
    linear(k)
    if k.timed:
        k.floats("out", COUNT // 2)[:] = 0


def packs_its_input_when_timed(k: Launched) -> None:
    linear(k)
    if k.timed:
        x = k.floats("x", COUNT)
        x[:] = x.astype(np.float16)


def notes_beside_its_output_when_timed(k: Launched) -> None:
    linear(k)
    if k.timed:
        k.floats("out", 1, COUNT)[0] = 1.0


LAZY = [counting, by_pointer, cached_by_pointer, cached_by_some_contents, all_in_the_first_call, half_when_timed,
        packs_its_input_when_timed, notes_beside_its_output_when_timed]  # fmt: skip


@pytest.mark.parametrize("cpu", [False, True], ids=["gpu", "cpu"])
@pytest.mark.parametrize("script", LAZY, ids=lambda s: s.__name__)
def test_work_that_is_skipped_when_timed(script: Script, cpu: bool) -> None:
    if script is not by_pointer:  # the allocator gives its second run the same buffers
        assert checked(script)[0] is Status.OK  # right in the check
    cell = timed(script, cpu=cpu)
    assert cell.status is Status.WRONG, cell
    assert "timed launch" in cell.reason


@pytest.mark.parametrize("cpu", [False, True], ids=["gpu", "cpu"])
def test_work_that_seems_done_is_never_met(cpu: bool) -> None:
    """A kernel that leaves alone what is no longer poison works every time, for all is poison again."""
    skipped = []

    def script(k: Launched) -> None:
        skipped.append(k.timed and not np.isnan(k.floats("out", 1)[0]))
        by_presence(k)

    assert timed(script, cpu=cpu).status is Status.OK
    assert not any(skipped)


@pytest.mark.parametrize("script", [by_pointer, by_presence])
def test_without_poison_before_each_pass_work_done_once_would_do(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rotation, "reset", lambda *_, **__: None)
    assert timed(script, task=linear_task()).status is Status.OK


def test_without_a_look_after_each_sample_a_count_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arm, "look", lambda *_, **__: [])
    assert timed(counting).status is Status.OK  # the one run alone at the end is from a fresh program


def test_without_a_look_at_launches_to_come_one_could_do_the_work_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arm, "_ahead", lambda _: "")
    assert timed(all_in_the_first_call).status is Status.OK


def test_without_exchanged_elements_a_cache_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rotation, "_exchange", lambda *_: None)
    for script in (cached_by_pointer, cached_by_some_contents):
        assert timed(script).status is Status.OK


def test_a_cache_keyed_by_all_contents_is_never_hit() -> None:
    hits = []

    def script(k: Launched) -> None:
        key = k.floats("x", COUNT).tobytes()
        hits.append(key in k.state)
        k.state[key] = True
        linear(k)

    assert timed(script).status is Status.OK
    assert len(hits) > 50
    assert sum(hits) < len(hits) / 20  # by chance an element takes the place of its equal


def test_a_workspace_keeps_nothing_from_launch_to_launch() -> None:
    space = ResolvedWorkspace("ws", dtype("f32"), COUNT, zeroed=False)
    hits = []

    def script(k: Launched) -> None:
        ws = k.floats("ws", COUNT)
        hits.append(bool(np.isfinite(ws).all()))
        linear(k)
        ws[:] = 1.0

    assert timed(script, workspaces=[space]).status is Status.OK
    few = [i for i, hit in enumerate(hits) if hit]
    assert len(few) < len(hits)  # within one pass a workspace may be met again; never with the same data
    assert timed(linear, workspaces=[ResolvedWorkspace("ws", dtype("f32"), 1 << 22, zeroed=True)]).status is Status.OK


@pytest.mark.parametrize("cpu", [False, True], ids=["gpu", "cpu"])
def test_a_set_is_used_once_per_pass(cpu: bool) -> None:
    """So in-place arguments, which are restored between passes, never hold a launch's own output."""
    task = linear_task(arguments=[InOut("x", "f32[T, d]")])
    task.oracle = lambda x: {"x": 2 * x + 1}
    largest = []

    def script(k: Launched) -> None:
        x = k.floats("x", COUNT)
        largest.append(float(np.abs(x).max()))
        x[:] = 2 * x + 1

    assert timed(script, task, cpu=cpu).status is Status.OK
    assert max(largest) < 7  # N(0, 1); twice applied it would reach 11


def test_what_one_candidate_broke_is_whole_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arm, "look", lambda *_, **__: [])  # undetected
    task = linear_task()
    device = ScriptedDevice({"linear": packs_its_input_when_timed, "honest": linear})
    judge = evaluator(device, task)
    judge.time(candidate(), task.workloads[0])
    monkeypatch.undo()
    cell = judge.time(candidate("honest"), task.workloads[0])
    assert (cell.status, cell.reason) == (Status.OK, "")


def test_a_lazy_kernel_of_a_task_that_may_differ_is_seen_too() -> None:
    task = linear_task(deterministic=False)
    for script in (counting, by_pointer, half_when_timed):
        assert timed(script, task).status is Status.WRONG, script

    def reorders(k: Launched) -> None:
        linear(k)
        k.state["n"] = k.state.get("n", 0) + 1
        k.floats("out", COUNT)[:] *= np.float32(1 + (k.state["n"] > 1) * 2e-7)  # never as it is alone

    assert timed(reorders, task).status is Status.OK
    assert timed(reorders).status is Status.WRONG


def test_a_time_of_zero_is_impossible() -> None:
    def script(k: Launched) -> None:
        linear(k)
        k.state["speed"] = 0.0

    cell = timed(script)
    assert cell.status is Status.IMPOSSIBLE
    assert "takes no time" in cell.reason


def test_contents_and_pointers_differ_between_launches() -> None:
    seen = set()

    def script(k: Launched) -> None:
        if k.timed:
            seen.add((k.address("x"), k.address("out"), k.floats("x", COUNT).tobytes()))
        linear(k)

    timed(script)
    assert len({x for x, _, _ in seen}) >= 6  # of 8 sets
    assert len({contents for _, _, contents in seen}) > 50


# --- scalars -----------------------------------------------------------------------------------------------------------


def test_a_drawn_scalar_reaches_the_kernel_with_its_data() -> None:
    task = Task(
        "scaled", dims={"T": dynamic, "d": static},
        arguments=[Input("x", "f32[T, d]"), Scalar("a", "f32", values=lambda to: to.rng.uniform(1, 2)),
                   Output("out", "f32[T, d]")],
        workloads=[Workload("w", T=7, d=33)],
    )  # fmt: skip
    task.reference(lambda x, a: x * a)
    used = set()

    def script(k: Launched) -> None:
        number = k.launch.args[1].value
        used.add(number)
        k.floats("out", COUNT)[:] = k.floats("x", COUNT) * np.float32(number)

    base = candidate()
    args = (Pointer("x"), Drawn(dtype("f32"), "a"), Pointer("out"))
    drawn = replace(base, launches=(replace(base.launches[0], args=args),))
    device = ScriptedDevice({"linear": script})
    judge = evaluator(device, task)
    found = judge.checker.verify(drawn, task.workloads[0])
    assert (found.status, found.reason) == (Status.OK, "")
    assert len(used) > 1  # with each distribution's data its own
    before = len(used)
    assert judge.time(drawn, task.workloads[0]).status is Status.OK
    assert len(used) == before + 3  # and one per content


# --- what crosses the line ---------------------------------------------------------------------------------------------


def test_no_message_carries_an_expected_output() -> None:
    """Expected outputs never reach the device's process, in no form that a comparison of bytes would find."""
    task = linear_task()
    device = ScriptedDevice({"linear": linear})
    judge = evaluator(device, task)
    workload = task.workloads[0]
    judge.checker.verify(candidate(), workload)
    judge.time(candidate(), workload)
    sent = b"".join(pickle.dumps(message) for message in device.said)
    for content in (0, 1, 2, 7):
        x = judge.checker.oracle.inputs(workload, content)["x"]
        want = judge.checker.oracle.expected(workload, content)["out"]
        assert np.ascontiguousarray(x).tobytes()[:64] in sent  # the probe finds what is there
        for kind in (np.float64, np.float32):
            assert want.astype(kind).tobytes()[:64] not in sent
    assert {type(m) for m in device.said} <= {Case, RunCheck, RunTime}
    for message in device.said:
        if isinstance(message, Case):
            assert all(set(content) <= {"x"} for content in message.contents)


def test_no_message_carries_the_seed() -> None:
    """Nor do the environment and the arguments of the process, which are made without it: test_process."""
    task, seed = linear_task(), 0x5EED5EED5EED
    device = ScriptedDevice({"linear": linear})
    judge = Checker(task, device, seed)  # type: ignore[arg-type]
    judge.verify(candidate(), task.workloads[0])
    sent = b"".join(pickle.dumps(message) for message in device.said)
    for known in (seed, *(seed * 1000 + content for content in (0, 1, 2, 7))):
        assert known.to_bytes(8, "little").rstrip(b"\0") not in sent
        assert str(known).encode() not in sent


def test_a_seed_is_drawn_where_none_is_given() -> None:
    """Nobody who writes a candidate can know what it will be checked with."""
    task = linear_task()
    one, two = (Checker(task, None).oracle.inputs(task.workloads[0])["x"] for _ in range(2))  # type: ignore[arg-type]
    assert not np.array_equal(one, two)


def test_an_error_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    task = linear_task()
    device = ScriptedDevice({"linear": linear})
    monkeypatch.setattr(device, "ask", lambda *_: Answer({"error": "KeyError: 'q'", "traceback": "Traceback …"}))
    found = checker(device, task).run(candidate(), task.workloads[0])
    assert (found.status, found.reason, found.log) == (Status.CRASHED, "KeyError: 'q'", "Traceback …")
    assert device.restarts == 1


def test_a_payload_is_aligned_as_promised_and_no_better() -> None:
    task = linear_task(align=16)
    exact = layouts(task, task.workloads[0], exact_alignment=True)["x"]
    assert exact.offset % 16 == 0
    assert exact.offset % 32 == 16
    buffer = io.BytesIO(exact.image(np.ones((7, 33), np.float32), 0xFF).tobytes())
    assert buffer.read(exact.offset) == b"\xff" * exact.offset
