"""On a real GPU: launches with every attribute, what the gates catch there, clocks, callables, play-offs. `pytest -m gpu`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scale import NAIVE_CU, TUNED_CU, measure_little, write
from tunesmith import checker, runs
from tunesmith.binding import Binding
from tunesmith.campaign import Order
from tunesmith.compiling import Compilers
from tunesmith.device import Device, find_device
from tunesmith.evaluate import Evaluator
from tunesmith.messages import Host
from tunesmith.playoff import Pairing, play
from tunesmith.prove import prove
from tunesmith.task import InOut, Input, Output, Task, Workload, dynamic
from tunesmith.template import Template
from tunesmith.trial import Status, Trial

pytestmark = pytest.mark.gpu
SUITE = Path(__file__).resolve().parent.parent / "suite"
TIMING = SUITE.parent / "benchmarks" / "timing.py"

HEAD = """/* tunesmith 1
entry = "scale"
grid  = ["ceil_div(n, 256)"]
block = ["256"]
args  = ["x", "y", "n"]
{extra}*/
#include <cuda_bf16.h>
#include <stdint.h>
"""
SIGNATURE = 'extern "C" __global__ void scale(const float* x, float* y, int n) '
RIGHT = "{ int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = 2.0f * x[i]; }"


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    held = find_device("cuda:0")
    yield held
    held.close()


@pytest.fixture(scope="module")
def compilers() -> Iterator[Compilers]:
    with Compilers(processes=4) as found:
        yield found


def scale_task(**more: object) -> Task:
    task = Task(
        "scale", dims={"n": dynamic}, arguments=[Input("x", "f32[n]"), Output("y", "f32[n]")],
        workloads=[Workload("odd", n=100_003)], held_out=[Workload("one", n=1)], bytes_moved="8*n", **more,  # type: ignore[arg-type]
    )  # fmt: skip

    @task.reference
    def scale(x: np.ndarray) -> np.ndarray:
        return 2 * x

    return task


def run(device: Device, compilers: Compilers, body: str, extra: str = "", task: Task | None = None) -> Trial:
    task = task or scale_task()
    evaluator = Evaluator(task, device, compilers)
    template = Template.parse(HEAD.format(extra=extra) + body, name="scale", language="cuda")
    return evaluator.evaluate(0, Binding(template, task), {}, task.workloads)


def test_a_right_kernel_is_right_and_timed(device: Device, compilers: Compilers) -> None:
    trial = run(device, compilers, SIGNATURE + RIGHT)
    assert trial.status is Status.OK, trial.reason
    timing = trial.cells["odd"].timing
    assert timing is not None
    assert 0 < timing.low_us <= timing.time_us <= timing.high_us


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("{ int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = 0.0f; }", Status.WRONG, "off"),
        ("{ int i = blockIdx.x * 256 + threadIdx.x; if (i < n - 1) y[i] = 2.0f * x[i]; }", Status.WRONG, "not written"),
        ("{ int i = blockIdx.x * 256 + threadIdx.x; y[i] = 2.0f * x[i % n]; }", Status.WRONG, "outside y"),
        ("{ int i = blockIdx.x * 256 + threadIdx.x; if (i < n) { y[i] = 2.0f * x[i]; ((float*)x)[i] = 0; } }",
         Status.WRONG, "changed"),
        ("{ int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = 2.0f * x[i] + 1e-3f * (clock64() & 7); }",
         Status.NONDETERMINISTIC, "differ"),
        ("{ int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = 2.0f * x[i]; if (i == 0) asm volatile(\"trap;\"); }",
         Status.CRASHED, ""),
        ("{ y[(size_t)1 << 40] = 1; }", Status.CRASHED, ""),
        ("{ __shared__ float s[60 << 10]; s[threadIdx.x] = x[0]; y[threadIdx.x] = s[0]; }", Status.BUILD_FAILED, ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_caught(device: Device, compilers: Compilers, body: str, status: Status, says: str) -> None:
    trial = run(device, compilers, SIGNATURE + body)
    assert trial.status is status, trial.reason
    assert says in trial.reason


def test_a_kernel_that_never_ends_costs_one_trial(
    device: Device, compilers: Compilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "TIMEOUT_S", 5.0)
    body = "{ int i = blockIdx.x * 256 + threadIdx.x; while (*(volatile const float*)x > -1e30f) { } if (i < n) y[i] = 0; }"
    trial = run(device, compilers, SIGNATURE + body)
    assert trial.status is Status.HUNG, trial.reason
    assert run(device, compilers, SIGNATURE + RIGHT).status is Status.OK


def test_a_race_in_shared_memory_shows_as_a_moving_result(device: Device, compilers: Compilers) -> None:
    body = """{ __shared__ float s[256]; int i = blockIdx.x * 256 + threadIdx.x;
      for (int r = 0; r < 64; ++r) { s[(threadIdx.x * 37 + r * clock64()) & 255] = (float)threadIdx.x; }
      if (i < n) y[i] = 2.0f * x[i] + 1e-3f * s[threadIdx.x]; }"""
    assert run(device, compilers, SIGNATURE + body).status in (Status.NONDETERMINISTIC, Status.WRONG)


def test_dynamic_shared_memory_above_48_kib_and_beyond_the_device(device: Device, compilers: Compilers) -> None:
    body = (
        SIGNATURE
        + """{ extern __shared__ float s[]; int i = blockIdx.x * 256 + threadIdx.x;
      s[threadIdx.x + 20000] = i < n ? x[i] : 0.0f; if (i < n) y[i] = 2.0f * s[threadIdx.x + 20000]; }"""
    )
    trial = run(device, compilers, body, extra='shared_bytes = "100000"\n')
    assert trial.status is Status.OK, trial.reason
    over = run(device, compilers, body, extra='shared_bytes = "400000"\n')
    assert over.status is Status.OVER_LIMITS
    assert "shared memory" in over.reason


@pytest.mark.parametrize("extra", ['cluster = ["2"]\n', "cooperative = true\n", "programmatic = true\n"])
def test_launch_attributes(device: Device, compilers: Compilers, extra: str) -> None:
    body = SIGNATURE + RIGHT
    task = scale_task()
    head = HEAD.replace('"ceil_div(n, 256)"', '"round_up(ceil_div(n, 256), 2)"')
    template = Template.parse(head.format(extra=extra) + body, name="scale", language="cuda")
    trial = Evaluator(task, device, compilers).evaluate(0, Binding(template, task), {}, task.workloads)
    assert trial.status is Status.OK, trial.reason


def test_in_place_arguments_are_restored_between_samples(device: Device, compilers: Compilers) -> None:
    task = Task("double", dims={"n": dynamic}, arguments=[InOut("x", "f32[n]")], workloads=[Workload("some", n=50_000)])

    @task.reference
    def double(x: np.ndarray) -> np.ndarray:
        return 2 * x

    source = HEAD.format(extra="").replace('"x", "y", "n"', '"x", "n"') + (
        'extern "C" __global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2; }'
    )
    template = Template.parse(source, name="double", language="cuda")
    trial = Evaluator(task, device, compilers).evaluate(0, Binding(template, task), {}, task.workloads)
    assert trial.status is Status.OK, trial.reason


@pytest.mark.parametrize("name", ["torch-eager", "torch-compile"])
def test_callable_baselines_are_right_and_timed(device: Device, compilers: Compilers, name: str) -> None:
    pytest.importorskip("torch")
    task = Task.load(SUITE / "silu_and_mul")
    evaluator = Evaluator(task, device, compilers)
    workload = next(w for w in task.workloads if w.name == "decode-16")
    arm = Host(str(task.folder), name, dict(workload.dims))
    checked = evaluator.checker.run(arm, workload)
    assert checked.status is Status.OK, checked.reason + checked.log
    cell = evaluator.time(arm, workload)
    assert cell.timing is not None, cell.reason


def test_a_play_off_tells_a_slower_kernel_and_not_an_equal_one(device: Device, compilers: Compilers) -> None:
    task = scale_task()
    evaluator = Evaluator(task, device, compilers)
    slow = """{ int i = blockIdx.x * 256 + threadIdx.x; float v = i < n ? x[i] : 0;
      for (int k = 0; k < 2000; ++k) v = v * 0.5f + v * 0.5f;
      if (i < n) y[i] = 2.0f * v; }"""
    arms = []
    for body in (RIGHT, slow):
        template = Template.parse(HEAD.format(extra="") + SIGNATURE + body, name="scale", language="cuda")
        prepared = evaluator.prepare(0, Binding(template, task), {}, task.workloads)
        assert not isinstance(prepared, Trial)
        found = evaluator.candidates(prepared, evaluator.builds(prepared))
        assert isinstance(found, dict)
        arms.append(found["odd"])
    workload = task.workloads[0]
    faster = play(evaluator.checker, [Pairing(workload, arms[1], arms[0])], processes=4)["odd"]
    assert faster.won
    assert not faster.lost
    equal = play(evaluator.checker, [Pairing(workload, arms[0], arms[0])], processes=4)["odd"]
    assert not equal.won
    assert not equal.lost


@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not here")
def test_the_session_is_clean_under_the_sanitizer() -> None:
    done = subprocess.run(
        ["compute-sanitizer", "--error-exitcode", "9", sys.executable, str(TIMING), "under-ncu"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-800:] + done.stderr[-400:]


# --- a whole search ----------------------------------------------------------------------------------------------------


def test_a_search_finds_proves_and_is_proven_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warp against a grid: the same task as on the CPU."""
    measure_little(monkeypatch)
    folder = write(tmp_path / "scale")
    (folder / "baselines" / "naive.cu").write_text(NAIVE_CU)
    (folder / "templates" / "tuned.cu").write_text(TUNED_CU)
    order = Order(
        folder, device="cuda:0", strategy="exhaustive", budget=("18trials",), run=tmp_path / "run", max_kernels=1
    )
    answer = runs.search(order, quiet=True)
    assert answer["improved"]
    assert answer["general"]["config"]["WRONG"] == 0
    assert answer["trials"]["by_status"]["wrong"] >= 3
    assert json.dumps(runs.replay(tmp_path / "run")) == json.dumps(answer)
    again = prove(tmp_path / "run" / "result", device="cuda:0", threads=None, progress=lambda _: None)
    assert again["holds"]
    assert again["stale"] == []
