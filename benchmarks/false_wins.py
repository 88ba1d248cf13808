"""Whole searches where nothing can be won: how many of them claim an improvement?

    python benchmarks/false_wins.py --device opencl:0 --searches 20 --json FILE

The template is the baseline with a parameter that changes machine code and nothing that matters, so configurations are no
duplicates of each other, and the best of many is a matter of luck. What the file holds already is not done again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from tunesmith import runs
from tunesmith.campaign import Order
from tunesmith.device import find_device

TASK = """
from tunesmith.task import Input, Output, Task, Workload, dynamic
task = Task(
    name="nothing", dims={"T": dynamic}, arguments=[Input("x", "f32[T]"), Output("out", "f32[T]")],
    workloads=[Workload("short", T=1 << 15), Workload("long", T=1 << 21)], bytes_moved="8*T",
)

@task.reference
def reference(x):
    return 2 * x + 1
"""
HEADER = """/* tunesmith 1
entry = "nothing"
grid = ["ceil_div(T, 1024)"]
block = ["{block}"]
args = ["x", "out", "T"]
*/
{marked}
"""
BODIES = {
    "opencl": """__kernel void nothing(__global const float* restrict x, __global float* restrict out, int T) {
  if (T == -1 - NOTHING) return;
  for (int k = 0; k < 16; ++k) {
    const int i = get_group_id(0) * 1024 + k * 64 + get_local_id(0);
    if (i < T) out[i] = 2 * x[i] + 1;
  }
}
""",
    "cuda": """extern "C" __global__ void nothing(const float* __restrict__ x, float* __restrict__ out, int T) {
  if (T == -1 - NOTHING) return;
  for (int k = 0; k < 4; ++k) {
    const int i = blockIdx.x * 1024 + k * 256 + threadIdx.x;
    if (i < T) out[i] = 2 * x[i] + 1;
  }
}
""",
}
SUFFIX = {"opencl": ".cl", "cuda": ".cu"}
VALUES = 24


def write_task(folder: Path, language: str) -> Path:
    block = 64 if language == "opencl" else 256
    values = ", ".join(map(str, range(VALUES)))
    for kind, marked in (("baselines", "#define NOTHING 0"), ("templates", f"#define NOTHING 0 // tune: {values}")):
        (folder / kind).mkdir(parents=True)
        text = HEADER.format(block=block, marked=marked) + BODIES[language]
        (folder / kind / f"{kind[:-1]}{SUFFIX[language]}").write_text(text)
    (folder / "task.py").write_text(TASK)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no search after this long")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    device = find_device(options.device)
    device.close()
    started = time.monotonic()
    rows = [json.loads(line) for line in options.json.read_text().splitlines()] if options.json.exists() else []
    while len(rows) < options.searches and time.monotonic() - started < options.seconds:
        with tempfile.TemporaryDirectory() as place:
            task = write_task(Path(place) / "nothing", device.language)
            order = Order(
                task, device=device.name, seed=len(rows), budget=(f"{VALUES}trials",), run=Path(place) / "run"
            )
            answer = runs.search(order, quiet=True)
        kept = ("improved", "reason", "general", "cells", "trials", "seconds")
        rows.append({"device": answer["device"]["name"], **{key: answer[key] for key in kept}})
        with options.json.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        ratios = [f"{c['speedup']['ratio']:.3f}" if c["speedup"] else "-" for c in answer["cells"]]
        print(f"{len(rows)}: improved {answer['improved']}, {ratios}, {answer['seconds']['total']} s", flush=True)
    print(f"{sum(row['improved'] for row in rows)} of {len(rows)} searches claimed an improvement where there is none")


if __name__ == "__main__":
    main()
