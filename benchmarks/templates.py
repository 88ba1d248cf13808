"""Searches over whole spaces of templates that models wrote: how much over the template's default, and how soon.

    python benchmarks/templates.py run --json FILE --device opencl:0 --only matmul row_softmax
    python benchmarks/templates.py judge --json FILE      # the best of each search, measured again side by side
    python benchmarks/templates.py show --json FILE

A search is a line of the file; what the file holds already is not done again, so this can stop at any time. Scores are the
searches' own, over the default's in the same search; `judge` sets the winners and the default side by side in fresh
processes, which is what counts.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunesmith.arena import Live
from tunesmith.calibrate import load
from tunesmith.compiling import Compilers
from tunesmith.device import find_device
from tunesmith.evaluate import Evaluator
from tunesmith.loops import explore
from tunesmith.run import Baseline, Run
from tunesmith.task import Task
from tunesmith.template import Template
from tunesmith.trial import Status

ROOT = Path(__file__).parents[1]
PROBLEMS = {  # name: task, template, workloads (None: all of the device's)
    "matmul": ("matmul", "template_1.cl", None),
    "row_softmax": ("row_softmax", "onepass.cl", None),
    "gemm_expose_1": ("gemm_bf16", "expose_1.cu", None),
    "gemm_template_1": ("gemm_bf16", "template_1.cu", None),
    "topk_expose_1": ("topk_softmax", "expose_1.cu", None),
}
AT = (10, 25, 50, 60, 100, 120)


@contextmanager
def arena(problem: str, device_name: str | None) -> Iterator[Live]:
    """The template on a device, facing its own default: scores are speedups over that."""
    folder, file, _ = PROBLEMS[problem]
    device = find_device(device_name)
    try:
        with Compilers(environment=device.environment) as compilers:
            task = Task.load(ROOT / "suite" / folder)
            template = Template.load(ROOT / "suite" / folder / "templates" / file)
            evaluator = Evaluator(task, device, compilers, seed=1, calibration=load(device))
            served = [w for w in evaluator.workloads() if all(w.dims.get(n, v) == v for n, v in template.fixed.items())]
            task.workloads = served
            yield Live.of(evaluator, [template])
    finally:
        device.close()


def search(live: Live, strategy: str, seed: int, trials: int) -> dict[str, Any]:
    """One search from the default; every trial's score over the default's."""
    (name,), (space,) = live.bindings, live.spaces.values()
    live.evaluator.seen.clear()
    live.evaluator.baseline_us = {}
    default = live.evaluator.evaluate(0, live.bindings[name], space.template.default, live.workloads)
    times = {w: cell.timing.time_us for w, cell in default.cells.items() if cell.timing}
    run = Run()
    run.emit(
        "begin", format=1, score=live.task.score, task=live.task.name, strategy=strategy, seed=seed, budget=[f"{trials}trials"],
        templates=[{"legal": 0, "exact": False}],
        workloads=[{"name": w.name, "weight": w.weight} for w in live.workloads],
    )  # fmt: skip
    live.face(Baseline("its default", "baseline", Status.OK, "", times), ())
    started = time.monotonic()
    explore(run, live)
    best, path = 0.0, []
    for trial in run.trials:
        best = max(best, trial.score or 0.0)
        path.append(round(best, 4))
    winner = run.best
    return {
        "strategy": strategy, "seed": seed, "path": path, "seconds": round(time.monotonic() - started, 1),
        "statuses": run.by_status(), "config": dict(winner.config) if winner else None,
    }  # fmt: skip


def kept(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def run_all(options: argparse.Namespace) -> None:
    done = {(r["problem"], r["strategy"], r["seed"]) for r in kept(options.json) if r["kind"] == "search"}
    for problem in options.only:
        with arena(problem, options.device) as live:
            for seed in range(options.seeds):
                for strategy in options.strategies:
                    trials = options.random_trials if strategy == "random" else options.trials
                    if (problem, strategy, seed) in done:
                        continue
                    found = search(live, strategy, seed, trials)
                    keep(
                        options.json, {"kind": "search", "problem": problem, "device": live.describe()["name"], **found}
                    )
                    took = f"{found['seconds']:.0f} s  {found['statuses']}"
                    print(f"{problem:14} {strategy:10} seed {seed}: {_at(found['path'])}  {took}", flush=True)


def judge(options: argparse.Namespace) -> None:
    """All winners of a problem and its default in turn on the same buffers, in fresh processes."""
    rows = kept(options.json)
    for problem in options.only:
        winners = [r for r in rows if r["kind"] == "search" and r["problem"] == problem and r["config"]]
        if not winners:
            continue
        with arena(problem, options.device) as live:
            (name,), (space,) = live.bindings, live.spaces.values()
            times = dict.fromkeys((w.name for w in live.workloads), 1.0)
            live.face(Baseline("its default", "baseline", Status.OK, "", times), ())
            live._arms["its default False"] = dict(live.arms(name, space.template.default))
            entries = {i: (name, r["config"]) for i, r in enumerate(winners, 1)}
            logs: dict[int, list[float]] = {i: [] for i in entries}
            for process in range(options.processes):
                found = live.time_together(entries, seed=process)
                weights = {w.name: w.weight for w in live.workloads}
                for i in entries:
                    parts = [(weights[w], math.log(t[0] / t[i])) for w, t in found.items() if isinstance(t, dict)]
                    logs[i].append(sum(w * x for w, x in parts) / sum(w for w, _ in parts))
            for i, winner in enumerate(winners, 1):
                ratio = math.exp(statistics.mean(logs[i]))
                keep(options.json, {"kind": "judged", "problem": problem, "strategy": winner["strategy"], "seed": winner["seed"],
                                    "over_default": round(ratio, 4), "processes": options.processes})  # fmt: skip
        show(options)


def show(options: argparse.Namespace) -> None:
    rows = kept(options.json)
    judged = {(r["problem"], r["strategy"], r["seed"]): r["over_default"] for r in rows if r["kind"] == "judged"}
    for problem in PROBLEMS:
        for strategy in dict.fromkeys(r["strategy"] for r in rows if r["problem"] == problem):
            mine = [r for r in rows if r["kind"] == "search" and (r["problem"], r["strategy"]) == (problem, strategy)]
            if not mine:
                continue
            means = {n: statistics.mean(r["path"][min(n, len(r["path"])) - 1] for r in mine) for n in AT}
            side = [judged[problem, strategy, r["seed"]] for r in mine if (problem, strategy, r["seed"]) in judged]
            beside = f"  side by side {statistics.mean(side):.3f} ({min(side):.3f} to {max(side):.3f})" if side else ""
            path = " ".join(f"{n}: {value:.3f}" for n, value in means.items())
            last, seconds = (
                statistics.mean(values) for values in zip(*((r["path"][-1], r["seconds"]) for r in mine), strict=True)
            )
            print(
                f"{problem:14} {strategy:10} {len(mine)} seeds  {path}  last {last:.3f}{beside}  {seconds:.0f} s",
                flush=True,
            )


def _at(path: list[float]) -> str:
    return " ".join(f"{n}: {path[min(n, len(path)) - 1]:.3f}" for n in AT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "judge", "show"))
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--only", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--strategies", nargs="*", default=["default", "evolution", "random"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=120)
    parser.add_argument("--random-trials", type=int, default=150)
    parser.add_argument("--processes", type=int, default=5)
    options = parser.parse_args()
    {"run": run_all, "judge": judge, "show": show}[options.what](options)


if __name__ == "__main__":
    main()
