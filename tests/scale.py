"""A small OpenCL task for whole searches: its texts, its folder, and measurements that are few."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunesmith import campaign, finals, loops, prove

TASK = """
from tunesmith.task import Input, Output, Task, Workload, dynamic, static
task = Task(
    name="scale", dims={"T": dynamic, "d": static},
    arguments=[Input("x", "f32[T, d]"), Output("out", "f32[T, d]")],
    workloads=[Workload("small", T=64, d=256), Workload("large", T=512, d=256)],
    held_out=[Workload("prime", T=17, d=256)], bytes_moved="8*T*d", rows="T",
)

@task.reference
def reference(x):
    return 2 * x + 1
"""
NAIVE = """/* tunesmith 1
entry = "scale"
grid = ["1"]
block = ["1"]
args = ["x", "out", "T"]
*/
#define DIM_D 256 // dim: d
__kernel void scale(__global const float* x, __global float* out, int T) {
  for (int r = 0; r < 4; ++r)
    for (int i = 0; i < T * DIM_D; ++i) out[i] = (r < 3 ? native_sin(x[i]) : 2 * x[i] + 1);
}
"""
TUNED = """/* tunesmith 1
entry = "scale"
grid = ["ceil_div(T*d, BLOCK*ITEMS)"]
block = ["BLOCK"]
args = ["x", "out", "T"]
[require]
"rows of eight" = "T % 8 == 0 or ITEMS < 8"
*/
#define DIM_D 256 // dim: d
#define BLOCK 64 // tune: 32, 64, 128
#define ITEMS 1  // tune: 1, 4, 8
#define WRONG 0  // tune: 0, 1; the last element is left out
__kernel void scale(__global const float* x, __global float* out, int T) {
  for (int k = 0; k < ITEMS; ++k) {
    const int i = (get_group_id(0) * ITEMS + k) * BLOCK + get_local_id(0);
    if (i < T * DIM_D - WRONG) out[i] = 2 * x[i] + 1;
  }
}
"""
NAIVE_CU = """/* tunesmith 1
entry = "scale"
grid = ["1"]
block = ["32"]
args = ["x", "out", "T"]
*/
#define DIM_D 256 // dim: d
extern "C" __global__ void scale(const float* x, float* out, int T) {
  for (int i = threadIdx.x; i < T * DIM_D; i += 32) out[i] = 2 * x[i] + 1;
}
"""
TUNED_CU = TUNED.replace("__kernel void", 'extern "C" __global__ void').replace("__global const", "const")
TUNED_CU = TUNED_CU.replace("__global float", "float").replace("get_group_id(0)", "blockIdx.x")
TUNED_CU = TUNED_CU.replace("get_local_id(0)", "threadIdx.x")


def write(folder: Path, *, task: str = TASK, naive: str = NAIVE, tuned: str = TUNED) -> Path:
    """The task's folder."""
    for kind, name, text in (("baselines", "naive", naive), ("templates", "tuned", tuned)):
        (folder / kind).mkdir(parents=True)
        (folder / kind / f"{name}.cl").write_text(text)
    (folder / "task.py").write_text(task)
    return folder


def measure_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is calibrated, and there are few processes and rounds."""
    monkeypatch.setattr(campaign, "load", lambda device: None)
    monkeypatch.setattr(campaign, "calibrate", lambda device, compilers: None)
    monkeypatch.setattr(loops, "PLAYS", 3)
    monkeypatch.setattr(prove, "PROCESSES", 3)
    monkeypatch.setattr(loops, "FINALS", 1)
    monkeypatch.setattr(finals, "ROUNDS", {"cpu": 3})
