"""The null device: real builds, real gates, and nothing that could be taken for a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tunesmith import worker
from tunesmith.backends import cuda, opencl
from tunesmith.backends.null import INVENTED, NOT_RUN, NullSession, invented_us
from tunesmith.backends.session import DeviceError, Placed
from tunesmith.binding import Binding
from tunesmith.build import BUILT, Build, BuildCache
from tunesmith.compiling import Compilers
from tunesmith.data import Layout, layouts
from tunesmith.device import Device, NullDevice, describe, find_device
from tunesmith.errors import UsageError
from tunesmith.evaluate import Evaluator
from tunesmith.launch import Pointer, ResolvedLaunch
from tunesmith.limits import named
from tunesmith.messages import Candidate, Case, Host, Open, RunCheck
from tunesmith.task import Input, Output, Task, Workload, dynamic
from tunesmith.template import Template
from tunesmith.trial import Status, Trial

SOURCE = """/* tunesmith 1
entry = "scale"
grid  = ["ceil_div(T, BLOCK*VEC)"]
block = ["BLOCK"]
args  = ["x", "out", "T"]
[require]
"no more than eight" = "VEC <= 8"
*/
#define BLOCK 128  // tune: 64, 128, 256, 2048
#define VEC 1  // tune: 1, 2, 4, 16
#define NAMED 0  // tune: 0, 1; changes a name and no code
#define BROKEN 0  // tune: 0, 1
#if BROKEN
#error broken on purpose
#endif
extern "C" __global__ void scale(const float* x, float* out, int T) {
  for (int v = 0; v < VEC; ++v) {
    const int index = (blockIdx.x * VEC + v) * BLOCK + threadIdx.x;
    if (index < T) out[index] = 2.0f * x[index];
  }
}
"""
DEFAULT = {"BLOCK": 128, "VEC": 1, "NAMED": 0, "BROKEN": 0}


@dataclass(frozen=True)
class Held:
    """A template on a device."""

    evaluator: Evaluator
    binding: Binding

    def evaluate(self, config: dict[str, int], number: int = 0) -> Trial:
        return self.evaluator.evaluate(number, self.binding, config, self.evaluator.workloads())


def a_task() -> Task:
    return Task(
        name="scale",
        dims={"T": dynamic},
        arguments=[Input("x", "f32[T]"), Output("out", "f32[T]")],
        workloads=[Workload("small", T=1000), Workload("large", T=1 << 24, weight=2.0)],
    )


# --- what it is --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "full"),
    [("null", "null:sm_90"), ("null:sm_80", "null:sm_80"), ("null:sm_90a:invented", "null:sm_90:invented")],
)
def test_named_by_an_architecture(name: str, full: str) -> None:
    device = find_device(name)
    try:
        assert (device.name, device.language, device.kind, device.runs) == (full, "cuda", "gpu", False)
        assert device.limits == named(full.split(":")[1])
        assert describe(device)["runs"] is False
        assert device.invents is ("invented" in name)
    finally:
        device.close()


def test_a_name_that_the_worker_does_not_know_is_wrong_input_not_a_missing_device() -> None:
    device = NullDevice("sm_80")
    device.arch = "sm_1"
    with pytest.raises(UsageError, match=r"unknown architecture 'sm_1'; known: .*sm_90"):
        assert device.limits
    device.close()


def test_a_device_beyond_the_last_is_wrong_input(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [SimpleNamespace(name="a GPU "), SimpleNamespace(name="a CPU")]
    monkeypatch.setattr(opencl, "platform_devices", lambda: devices)
    assert opencl.open_device(1) is devices[1]
    with pytest.raises(UsageError, match=r"'opencl:7'; known: opencl:0 \(a GPU\), opencl:1 \(a CPU\)"):
        opencl.open_device(7)
    monkeypatch.setattr(cuda, "driver", lambda: None)
    monkeypatch.setattr(cuda, "count", lambda: 2)
    with pytest.raises(UsageError, match="'cuda:9'; known: cuda:0, cuda:1"):
        cuda.CudaSession(9)


def test_other_devices_run() -> None:
    assert Device.runs
    assert not Device.invents


@pytest.mark.parametrize("name", ["null:sm_1", "null:sm_90:measured", "recorded:f.json", "nothing"])
def test_names_that_are_no_device(name: str) -> None:
    with pytest.raises(UsageError):
        find_device(name)


# --- through the gates -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compilers]:
    pytest.importorskip("cuda.bindings.nvrtc")
    with Compilers(processes=1, cache=BuildCache(tmp_path_factory.mktemp("builds"))) as held:
        yield held


@pytest.fixture(scope="module")
def opened(compilers: Compilers) -> Iterator[dict[str, Held]]:
    """The template on a null device of each kind."""
    found, devices = {}, []
    for name in ("null:sm_90", "null:sm_80", "null:sm_90:invented"):
        devices.append(find_device(name))
        task, template = a_task(), Template.parse(SOURCE, name="scale", language="cuda")
        evaluator = Evaluator(task, devices[-1], compilers)
        found[name] = Held(evaluator, Binding(template, task))
    yield found
    for device in devices:
        device.close()


@pytest.fixture
def subjects(opened: dict[str, Held]) -> dict[str, Held]:
    for subject in opened.values():
        subject.evaluator.seen.clear()
        subject.evaluator.baseline_us.clear()
    return opened


def test_it_builds_and_stops_there(subjects: dict[str, Held]) -> None:
    for name in ("null:sm_90", "null:sm_80"):
        trial = subjects[name].evaluate(DEFAULT, number=3)
        assert (trial.number, trial.status, trial.reason) == (3, Status.OK, NOT_RUN)
        assert (trial.cells, trial.score, trial.measured) == ({}, None, False)
        ((kernel,),) = trial.resources.values()
        assert kernel.registers > 0
        assert kernel.parameters == (8, 8, 4)


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"VEC": 16}, Status.ILLEGAL, "no more than eight"),
        ({"BROKEN": 1}, Status.BUILD_FAILED, "broken on purpose"),
        ({"BLOCK": 2048}, Status.OVER_LIMITS, "2048 threads per block"),
    ],
)
def test_the_gates_apply(subjects: dict[str, Held], change: dict[str, int], status: Status, reason: str) -> None:
    for subject in subjects.values():
        trial = subject.evaluate({**DEFAULT, **change})
        assert trial.status is status
        assert reason in trial.reason


def test_equal_code_is_a_duplicate(subjects: dict[str, Held]) -> None:
    subject = subjects["null:sm_90"]
    assert subject.evaluate(DEFAULT, number=1).status is Status.OK
    twin = subject.evaluate({**DEFAULT, "NAMED": 1}, number=2)
    assert (twin.status, twin.twin, twin.score) == (Status.DUPLICATE, 1, None)


def test_invented_times_rank_and_say_what_they_are(subjects: dict[str, Held]) -> None:
    subject = subjects["null:sm_90:invented"]
    default = subject.evaluate(DEFAULT)
    assert default.score is None  # no baseline yet
    assert {name: cell.reason for name, cell in default.cells.items()} == {"small": INVENTED, "large": INVENTED}
    for name, cell in default.cells.items():
        assert cell.timing is not None
        subject.evaluator.baseline_us[name] = cell.timing.time_us
    other = subject.evaluate({**DEFAULT, "BLOCK": 256, "VEC": 4})
    assert (other.status, other.reason) == (Status.OK, INVENTED)
    assert other.score is not None
    assert other.score > 1
    subject.evaluator.seen.clear()
    assert subject.evaluate({**DEFAULT, "BLOCK": 256, "VEC": 4}).cells == other.cells


def test_a_check_by_hand_is_refused(subjects: dict[str, Held]) -> None:
    evaluator = subjects["null:sm_90:invented"].evaluator
    prepared = evaluator.prepare(0, subjects["null:sm_90"].binding, DEFAULT, evaluator.workloads()[:1])
    assert not hasattr(prepared, "status")
    candidates = evaluator.candidates(prepared, evaluator.builds(prepared))
    assert isinstance(candidates, dict)
    checked = evaluator.checker.run(candidates["small"], evaluator.workloads()[0])
    assert checked.status is not Status.OK
    assert checked.reason == NOT_RUN


def test_a_callable_baseline_has_no_time(subjects: dict[str, Held]) -> None:
    for subject in subjects.values():
        cell = subject.evaluator.time(Host("somewhere", "name", {}), subject.evaluator.workloads()[0])
        assert (cell.reason, cell.timing) == (NOT_RUN, None)


# --- the data that it holds --------------------------------------------------------------------------------------------


def test_cases_that_were_not_used_for_longest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    task = a_task()
    placed = layouts(task, task.workloads[0], exact_alignment=True)
    data = {"x": np.zeros(1000, np.float32)}
    cases = {key: Case(key, placed, (data,)) for key in "abcd"} | {"large": Case("large", placed, (data,) * 9)}
    one = cases["a"].size_bytes
    assert one == 4000 + sum(layout.size for layout in placed.values())
    monkeypatch.setattr("tunesmith.device.CASES_BYTES", 3 * one)
    device = find_device("null:sm_90")
    try:
        for key in "abca":
            device.load(cases[key])
        device.ask(RunCheck("b", CANDIDATE), 30.0)
        device.load(cases["d"])
        assert [key for key in cases if device.has(key)] == ["a", "b", "d"]
        assert device.ask(RunCheck("a", CANDIDATE), 30.0).fields["device_error"] == NOT_RUN
        assert "KeyError: 'c'" in device.ask(RunCheck("c", CANDIDATE), 30.0).fields["error"]
        device.load(cases["large"])
        assert [key for key in cases if device.has(key)] == ["large"]
    finally:
        device.close()


# --- the session -------------------------------------------------------------------------------------------------------

LAUNCH = ResolvedLaunch("k", (4, 1, 1), (256, 1, 1), (Pointer("x"), Pointer("out")))
BUILT_K = Build("key", BUILT, fingerprint="code")
CANDIDATE = Candidate(BUILT_K, (LAUNCH,))


def test_a_session_launches_nothing_and_times_nothing() -> None:
    session = NullSession("sm_80")
    with pytest.raises(DeviceError, match=NOT_RUN):
        session.run([])
    with pytest.raises(DeviceError, match=NOT_RUN):
        session.prepare([[]])
    with pytest.raises(DeviceError, match=NOT_RUN):
        session.prepare_callable([], capture=False)


def test_invented_times_are_sums_over_launches() -> None:
    session, placed = NullSession("sm_90:invented"), Placed(BUILT_K, LAUNCH, {})
    with pytest.raises(DeviceError, match=NOT_RUN):
        session.run([placed])
    one = invented_us(BUILT_K, [LAUNCH], session.limits)
    assert session.time(lambda: None, session.prepare([[placed]])) == one
    assert session.time(lambda: None, session.prepare([[placed]] * 7)) == pytest.approx(7 * one)
    assert invented_us(BUILT_K, [replace(LAUNCH, grid=(0, 1, 1))], session.limits) == 0.0
    assert invented_us(BUILT_K, [replace(LAUNCH, grid=(40_000, 1, 1))], session.limits) > 10 * one
    assert invented_us(replace(BUILT_K, fingerprint="other"), [LAUNCH], session.limits) != one


def test_memory_is_a_host_array() -> None:
    session = NullSession()
    buffer, other = session.allocate(16), session.allocate(16)
    session.fill(buffer, 0xFF, 16)
    session.write(buffer, np.arange(2, dtype=np.float32), 4)
    session.copy(other, buffer, 12)
    session.pointer(other, 14)[:] = 7
    assert session.read(other, 8, 4).view(np.float32).tolist() == [0.0, 1.0]
    assert other.tolist()[:4] == [255] * 4
    assert other.tolist()[12:] == [0, 0, 7, 7]


# Python in place of a kernel: what the worker sees of a candidate, without hardware.


def doubles(placed: Placed) -> None:
    x, out = (placed.pointers[name][:4000].view(np.float32) for name in ("x", "out"))
    out[:] = 2 * x


def forgets_the_tail(placed: Placed) -> None:
    doubles(placed)
    placed.pointers["out"][3996:4000] = placed.pointers["out"][4000]  # as it was: poison


def writes_beyond(placed: Placed) -> None:
    doubles(placed)
    placed.pointers["out"][4003] ^= 0x55


def changes_its_input(placed: Placed) -> None:
    doubles(placed)
    placed.pointers["x"][0] ^= 1


def check(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    held = worker._Held(NullSession("sm_90", kernel))
    monkeypatch.setattr(worker, "HELD", held)
    task = a_task()
    placed: dict[str, Layout] = layouts(task, task.workloads[0], exact_alignment=True)
    worker.handle(Case("small", placed, ({"x": np.arange(1000, dtype=np.float32)},)))
    answer = worker.handle(RunCheck("small", Candidate(BUILT_K, (LAUNCH,))))
    return answer if isinstance(answer, tuple) else (answer, ())


def test_the_worker_gives_back_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    fields, parts = check(monkeypatch, doubles)
    assert fields["problems"] == []
    assert fields["outputs"] == [{"name": "out", "unwritten": 0, "differing": 0, "elements": 1000}]
    assert np.array_equal(np.frombuffer(parts[0], np.float32), 2 * np.arange(1000, dtype=np.float32))


@pytest.mark.parametrize(
    ("kernel", "problem"), [(writes_beyond, "wrote outside out"), (changes_its_input, "the input x was changed")]
)
def test_the_worker_sees_what_must_not_be(monkeypatch: pytest.MonkeyPatch, kernel: Any, problem: str) -> None:
    fields, _ = check(monkeypatch, kernel)
    assert fields["problems"]
    assert all(problem in text for text in fields["problems"])


def test_the_worker_counts_what_was_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    fields, _ = check(monkeypatch, forgets_the_tail)
    assert fields["outputs"][0]["unwritten"] == 1


def test_a_worker_without_kernels_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    fields, _ = check(monkeypatch, None)
    assert fields == {"device_error": NOT_RUN}


def test_opening_an_architecture_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "HELD", worker._Held())
    assert "unknown architecture" in worker.handle(Open("null", "sm_1"))["device_error"]  # type: ignore[call-overload]
    assert worker.handle(Open("null", "sm_80"))["limits"]["arch"] == "sm_80"  # type: ignore[call-overload]
    assert NullDevice("sm_80").open_message() == Open("null", "sm_80")
