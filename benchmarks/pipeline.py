"""Trials per minute, ours against Kernel Tuner, on one kernel, the same configurations, cold caches, outputs compared once each.

    python benchmarks/pipeline.py --device cuda:0 --configs 500 [--rival-path DIR] [--json FILE]

Start-up, oracle and inputs stand outside both clocks. Kernel Tuner compiles and measures one after the other; ours compiles
on all cores while the device measures. Also prints where the milliseconds of one of our trials go.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tunesmith.binding import Binding
from tunesmith.build import BuildCache
from tunesmith.compiling import Compilers
from tunesmith.data import expected
from tunesmith.device import find_device
from tunesmith.evaluate import Evaluator
from tunesmith.pipeline import Pipeline
from tunesmith.space import Space
from tunesmith.task import Task
from tunesmith.template import Template

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time")  # Kernel Tuner's
TASK, FILE, WORKLOAD = "silu_and_mul", "flat.cu", "decode-16"


def ours(device_name: str, configs: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    task = Task.load(ROOT / "suite" / TASK)
    device = find_device(device_name)
    with (
        tempfile.TemporaryDirectory() as cold,
        Compilers(environment=device.environment, cache=BuildCache(Path(cold))) as compilers,
    ):
        evaluator = Evaluator(task, device, compilers)
        binding = Binding(Template.load(ROOT / "suite" / TASK / "templates" / FILE), task)
        workload = next(w for w in task.workloads if w.name == WORKLOAD)
        space = Space(binding.template, task, settings=task.settings([workload]), limits=device.limits)
        sampled = space.sample(4 * configs, np.random.default_rng(0))
        chosen = [c for c in sampled if binding.why_illegal(c, workload, device.limits) is None][:configs]
        first = evaluator.evaluate(
            0, binding, binding.template.default, [workload]
        )  # start-up, oracle, inputs, processes
        assert first.score is None
        evaluator.seen.clear()
        for warm in range(compilers.processes):  # every compile process is started before the clock is
            compilers.submit(_warm_up(binding, task, evaluator, workload, warm), evaluator.version)
        while compilers.pending:
            compilers.take(1.0)
        pipeline = Pipeline(evaluator, [workload])
        started = time.monotonic()
        trials = list(pipeline.through((number, binding, config) for number, config in enumerate(chosen, 1)))
        seconds = time.monotonic() - started
        pipeline.close()
    device.close()
    statuses: dict[str, int] = {}
    stages: dict[str, float] = {}
    for trial in trials:
        statuses[str(trial.status)] = statuses.get(str(trial.status), 0) + 1
        for stage, took in trial.seconds.items():
            stages[stage] = stages.get(stage, 0.0) + took
    report = {
        "tuner": "tunesmith", "trials": len(trials), "seconds": seconds, "trials_per_minute": 60 * len(trials) / seconds,
        "ms_per_trial": 1000 * seconds / len(trials), "compile_processes": compilers.processes,
        "device_busy_share": pipeline.busy_s / seconds, "statuses": statuses,
        "stage_ms_per_trial": {stage: 1000 * took / len(trials) for stage, took in stages.items()},
        "overlap": (stages.get("compile", 0.0) + stages.get("device", 0.0)) / seconds,
    }  # fmt: skip
    return report, chosen


def _warm_up(binding: Binding, task: Task, evaluator: Evaluator, workload: Any, number: int) -> Any:
    from dataclasses import replace

    from tunesmith.gates import program_of

    program = program_of(binding, task, binding.template.default, task.setting(workload), evaluator.limits)
    return replace(program, source=program.source + f"\n// {number}\n")


def kernel_tuner(chosen: list[dict[str, Any]]) -> dict[str, Any]:
    """The same file, the same configurations: each a whole source, so that nothing but the marked lines differs."""
    import cupy
    import kernel_tuner as kt

    task = Task.load(ROOT / "suite" / TASK)
    template = Template.load(ROOT / "suite" / TASK / "templates" / FILE)
    workload = next(w for w in task.workloads if w.name == WORKLOAD)
    from tunesmith.backends.cuda import device_limits
    from tunesmith.oracle import Oracle

    binding, limits = Binding(template, task), device_limits()
    oracle = Oracle(task)
    x = oracle.inputs(workload)["x"].view(np.uint16)
    want = expected(task, workload, oracle.inputs(workload))["out"]
    out = np.zeros(want.shape, np.uint16)
    launches = [binding.launches(config, workload, limits)[0] for config in chosen]
    setting = task.setting(workload)

    def source(params: dict[str, Any]) -> str:
        return template.render(chosen[int(params["which"])], dict(setting.dims), dict(setting.types))

    def verify(reference: list[Any], answer: list[Any], atol: float | None = None) -> bool:
        import ml_dtypes

        got = np.asarray(answer[1]).view(ml_dtypes.bfloat16).astype(np.float64)
        return bool(np.abs(got - want).max() <= 0.05 * np.abs(want).max())

    tune = {"which": list(range(len(chosen))), "block_size_x": sorted({launch.block[0] for launch in launches})}
    block = {i: launch.block[0] for i, launch in enumerate(launches)}

    def own_block(params: dict[str, Any]) -> bool:
        return block[int(params["which"])] == params["block_size_x"]

    started = time.monotonic()
    # Kernel Tuner wants the block size as a parameter of its own: restricted to the one that each configuration has
    results, _ = kt.tune_kernel(
        template.launches[0].entry,
        source,
        lambda params: launches[int(params["which"])].grid,
        [x, out, np.int32(workload.dims["T"])],
        tune,
        restrictions=own_block,
        grid_div_x=[],
        answer=[None, out, None],
        verify=verify,
        lang="cupy",
        iterations=7,
        quiet=True,
        verbose=False,
        compiler_options=["-std=c++17", *[f"-I{folder}" for folder in _headers()]],
    )
    seconds = time.monotonic() - started
    del cupy
    right = [r for r in results if isinstance(r.get("time"), float)]
    return {"tuner": f"kernel_tuner {kt.__version__ if hasattr(kt, '__version__') else ''}", "trials": len(results),
            "right": len(right), "seconds": seconds, "trials_per_minute": 60 * len(results) / seconds,
            "ms_per_trial": 1000 * seconds / max(1, len(results)),
            "stage_ms_per_trial": {k: sum(r.get(k, 0.0) or 0.0 for r in results) / max(1, len(results))
                                   for k in STAGES}}  # fmt: skip


def _headers() -> tuple[str, ...]:
    from tunesmith.backends.nvrtc import SHIMS, header_folders

    return (*header_folders(), str(SHIMS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--configs", type=int, default=500)
    parser.add_argument("--rival-configs", type=int, default=0, help="0: the same number")
    parser.add_argument("--rival-path", help="a folder with Kernel Tuner and what it needs")
    parser.add_argument("--json")
    options = parser.parse_args()
    report, chosen = ours(options.device, options.configs)
    rows = [report]
    print(json.dumps(report), flush=True)
    if options.rival_path:
        sys.path.insert(0, options.rival_path)
        os.environ["PYTHONPATH"] = options.rival_path
        rows.append(kernel_tuner(chosen[: options.rival_configs or None]))
        print(json.dumps(rows[1]))
        print(
            f"trials per minute, ours over Kernel Tuner's: {rows[0]['trials_per_minute'] / rows[1]['trials_per_minute']:.1f}"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
