"""How far our times can be trusted, on one GPU: beside ncu and globaltimer, over launches per sample, orders and processes.

    python benchmarks/timing.py absolute [--json FILE]   eight kernels: ours, events inside the graph, ncu
    python benchmarks/timing.py launches                  one kernel, 1 to 64 launches in a sample
    python benchmarks/timing.py order                     the same kernels in every order, in fresh processes

Needs a CUDA device; `ncu` where it is there. Prints a table; a figure is a median of medians unless said otherwise.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EMPTY = "an empty kernel"
KERNELS = (  # task, file, workload
    ("topk_softmax", "templates/expose_1.cu", "decode-16"),
    ("silu_and_mul", "templates/bulk.cu", "decode-16"),
    ("fused_add_rmsnorm", "baselines/served.cu", "decode-32"),
    ("topk_softmax", "templates/expose_1.cu", "prefill-16384"),
    ("gemm_bf16", "templates/expose_1.cu", "decode-64"),
    ("fused_add_rmsnorm", "baselines/served.cu", "prefill-4096"),
    ("silu_and_mul", "templates/bulk.cu", "prefill-4096"),
    ("gemm_bf16", "baselines/general.cu", "prefill-4096"),
    ("topk_softmax", EMPTY, "decode-16"),  # nothing but a launch: what the two clocks make of that
)


def candidate(task_name: str, file: str, workload_name: str) -> tuple[Any, Any]:
    """A kernel at its defaults, built: (case, candidate) as the device's process takes them."""
    from tunesmith.backends import nvrtc
    from tunesmith.backends.cuda import device_limits
    from tunesmith.binding import Binding
    from tunesmith.build import Program
    from tunesmith.checker import Checker
    from tunesmith.gates import program_of
    from tunesmith.launch import ResolvedLaunch
    from tunesmith.messages import Candidate
    from tunesmith.task import Task
    from tunesmith.template import Template

    task = Task.load(ROOT / "suite" / task_name)
    if file == EMPTY:
        build = nvrtc.compile_program(
            Program("cuda", 'extern "C" __global__ void empty() {}', ("empty",), "sm_90a"), EMPTY
        )
        case = Checker(task, None).case(task.workloads[0], exact_alignment=False, contents=(0,))  # type: ignore[arg-type]
        return case, Candidate(build, (ResolvedLaunch("empty", (16, 1, 1), (32, 1, 1), ()),))
    binding = Binding(Template.load(ROOT / "suite" / task_name / file), task)
    workload = next(w for w in task.workloads if w.name == workload_name)
    limits = device_limits()
    config = binding.template.default
    build = nvrtc.compile_program(
        program_of(binding, task, config, task.setting(workload), limits), f"{task_name}{file}"
    )
    case = Checker(task, None).case(workload, exact_alignment=False, contents=(0,))  # type: ignore[arg-type]
    return case, Candidate(
        build, binding.launches(config, workload, limits), binding.workspaces(config, workload, limits)
    )


class Bench:
    """A session with one kernel's buffer sets, timed in several ways."""

    def __init__(self, session: Any, case: Any, found: Any) -> None:
        from tunesmith.rotation import Arm, Rotation

        self.session = session
        rotation = Rotation(session, case)
        rotation.restore()
        self.arm = Arm(rotation, found)
        self.batch = self.arm.batch

    def outside(self, launches: int, samples: int) -> list[float]:
        """The product's way: flush, event, graph, event."""
        launches = min(launches, len(self.batch))
        replay, before = self.arm.launcher(range(launches)), partial(self.arm.before, range(launches))
        for _ in range(2):
            self.session.time(before, replay)
        return [self.session.time(before, replay) / launches for _ in range(samples)]

    def inside(self, launches: int, samples: int) -> list[float]:
        """Events as nodes of the graph itself, after a flush in the same graph."""
        cu, session = self.session.cu, self.session
        from tunesmith.backends.cuda import _ok

        launches = min(launches, len(self.batch))
        events = [_ok(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DEFAULT)) for _ in range(2)]
        _ok(cu.cuStreamBeginCapture(session.stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        session._flush()
        external = cu.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL
        _ok(cu.cuEventRecordWithFlags(events[0], session.stream, external))
        for placed in self.batch[:launches]:
            for one in placed:
                session._launch(one)
        _ok(cu.cuEventRecordWithFlags(events[1], session.stream, external))
        replay = session._instantiate(_ok(cu.cuStreamEndCapture(session.stream)))
        found = []
        for index in range(samples + 2):
            self.arm.before(range(launches))
            replay()
            session.synchronize()
            us = 1000.0 * float(_ok(cu.cuEventElapsedTime(*events)))
            if index >= 2:
                found.append(us / launches)
        return found


def open_session() -> Any:
    from tunesmith.backends.cuda import CudaSession

    return CudaSession(0)


def absolute() -> list[dict[str, Any]]:
    session = open_session()
    rows = []
    for index, kernel in enumerate(KERNELS):
        bench = Bench(session, *candidate(*kernel))
        few = 256 if index < 4 or kernel[1] == EMPTY else 8
        rows.append({
            "kernel": " ".join(kernel),
            "ours": statistics.median(bench.outside(few, 15)),
            "inside": statistics.median(bench.inside(few, 15)),
            "launches": min(few, len(bench.batch)),
            "ncu": ncu(index),
        })  # fmt: skip
        _free(bench)
    return rows


def _free(bench: Bench) -> None:
    from tunesmith import worker

    for key in list(worker.HELD.cases):
        worker._forget(key)
    bench.session.forget()


def ncu(index: int) -> float | None:
    """The median of ncu's duration of the same launches, its caches flushed before each."""
    if shutil.which("ncu") is None:
        return None
    command = ["ncu", "--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--csv", "--kernel-name-base", "function",
               "--kernel-name", "regex:^(?!flush).*", sys.executable, __file__, "under-ncu", "--kernel", str(index)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    per_launch: list[float] = []
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        scale = {"ns": 1e-3, "us": 1.0, "usecond": 1.0, "nsecond": 1e-3, "ms": 1e3}[row["Metric Unit"]]
        per_launch.append(float(row["Metric Value"].replace(",", "")) * scale)
    if not per_launch:
        print(done.stdout[-500:], done.stderr[-500:], file=sys.stderr)
        return None
    return statistics.median(per_launch)


def under_ncu(index: int) -> None:
    bench = Bench(open_session(), *candidate(*KERNELS[index]))
    for placed in (bench.batch * 4)[:9]:
        bench.session.run(placed)


def launches() -> list[dict[str, Any]]:
    """Whether the time per launch depends on how many launches a sample holds."""
    session = open_session()
    rows = []
    for index in (0, 1, 3, 4, 7, 8):
        kernel = (*KERNELS, ("gemm_bf16", "templates/expose_1.cu", "prefill-4096"))[index]
        bench = Bench(session, *candidate(*kernel))
        row: dict[str, Any] = {"kernel": " ".join(kernel)}
        most = len(bench.batch)
        for count in (1, 2, 4, 8, 16, 32, 64):
            if count <= most:
                row[f"{count} outside"] = round(statistics.median(bench.outside(count, 15)), 3)
                row[f"{count} inside"] = round(statistics.median(bench.inside(count, 15)), 3)
        rows.append(row)
        _free(bench)
    return rows


def order(processes: int) -> list[dict[str, Any]]:
    """Four short kernels, each process in another order; buffers and context new in each."""
    orders = list(itertools.permutations(range(4)))
    found: dict[int, list[list[float]]] = {}
    for index in range(processes):
        chosen = orders[(index * 7) % len(orders)]
        command = [sys.executable, __file__, "one-order", "--order", ",".join(map(str, chosen))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr[-1500:], file=sys.stderr)
            continue
        for place, (kernel, us) in enumerate(zip(chosen, json.loads(done.stdout), strict=True)):
            found.setdefault(kernel, []).append([place, us])
    rows = []
    for kernel, values in sorted(found.items()):
        times = [us for _, us in values]
        by_place = {
            place: statistics.median(u for p, u in values if p == place) for place in sorted({p for p, _ in values})
        }
        rows.append({
            "kernel": " ".join(KERNELS[kernel]), "processes": len(times), "median": statistics.median(times),
            "spread": (max(times) - min(times)) / statistics.median(times), "by place": by_place,
        })  # fmt: skip
    return rows


def one_order(chosen: list[int]) -> list[float]:
    session = open_session()
    found = []
    for index in chosen:
        bench = Bench(session, *candidate(*KERNELS[index]))
        found.append(statistics.median(bench.outside(64, 25)))
        _free(bench)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("absolute", "launches", "order", "under-ncu", "one-order"))
    parser.add_argument("--kernel", type=int, default=0)
    parser.add_argument("--order", default="0,1,2,3")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--json")
    options = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", str(ROOT / "src"))
    if options.part == "under-ncu":
        return under_ncu(options.kernel)
    if options.part == "one-order":
        return print(json.dumps(one_order([int(i) for i in options.order.split(",")])))
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "absolute": absolute, "launches": launches, "order": lambda: order(options.processes),
    }  # fmt: skip
    rows = parts[options.part]()
    for row in rows:
        print("  ".join(f"{k}: {v:.3f}" if isinstance(v, float) else f"{k}: {v}" for k, v in row.items()))
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))
    return None


if __name__ == "__main__":
    main()
