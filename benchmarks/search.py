"""How near to the best configuration a strategy comes after so many evaluations, on spaces that answer without a device.

    python benchmarks/search.py                                  # the default strategy on benchmarks/recorded
    python benchmarks/search.py --strategy evolution --strategy my.py --spaces FILE FILE,FILE --repeats 10 --json
    python benchmarks/search.py --spaces synthetic --budget 150
    python3 -m venv /tmp/rivals && /tmp/rivals/bin/pip install 'kernel-tuner==1.5.*'
    python benchmarks/search.py --rivals-python /tmp/rivals/bin/python --plot curves.svg

A figure is the mean over repeats of optimum ÷ best found so far, in time, after that many evaluations: failures count as
evaluations, and it is 0 while nothing succeeded. Several files joined by a comma are workloads of one space. `low` and
`high` are a 95 % interval of the mean over the spaces, by bootstrap over repeats. Kernel Tuner searches the same
spaces, written as its cache files, through its own simulation mode.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The models' matrices are small, and several benchmarks may run beside each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from search_plot import plotted
from search_problems import Problem, all_recorded, all_synthetic, problem
from search_rivals import RIVALS, rival_curves
from tunesmith.search import BUILT_IN, Maker, find_strategy
from tunesmith.template import Config

AT = (10, 25, 50, 100, 220)
DRAWS = 2000  # of the bootstrap over repeats


@dataclass(frozen=True)
class Curves:
    """One strategy on one space: a row per repeat, a column per evaluation."""

    reached: np.ndarray[Any, Any]
    ms_per_trial: float = 0.0  # of ask and tell together


def play(found: Problem, maker: Maker, budget: int, width: int, seed: int) -> tuple[list[float], float]:
    """One search: what it has reached after each evaluation, and the seconds spent in ask and tell."""
    strategy = maker(found.space, np.random.default_rng(seed))
    under_way: list[Config] = []
    reached, told, best, spent = list[float](), 0.0, 0.0, 0.0
    while len(reached) < budget:
        start = time.perf_counter()
        while len(under_way) < width and (config := strategy.ask()) is not None:
            under_way.append(config)
        spent += time.perf_counter() - start
        if not under_way:
            break
        trial = found.evaluate(under_way.pop(0), len(reached))
        if trial.score is not None and trial.score > told:
            told, best = trial.score, found.truth(trial) / found.optimum
        reached.append(best)
        start = time.perf_counter()
        strategy.tell(trial)
        spent += time.perf_counter() - start
    return reached + [best] * (budget - len(reached)), spent


def curves(found: Problem, maker: Maker, budget: int, repeats: int, width: int = 1) -> Curves:
    runs = [play(found, maker, budget, width, seed) for seed in range(repeats)]
    spent = sum(seconds for _, seconds in runs)
    return Curves(np.array([reached for reached, _ in runs]), 1000.0 * spent / (budget * repeats))


def summary(found: Mapping[str, Curves], budget: int) -> dict[str, Any]:
    """The figures of one strategy."""
    at = [a for a in AT if a <= budget] or [budget]
    repeats = min(len(c.reached) for c in found.values())
    means = np.array([[c.reached[r, a - 1] for a in at] for c in found.values() for r in range(repeats)])
    over_spaces = means.reshape(len(found), repeats, len(at)).mean(0)
    middle = over_spaces.mean(0)
    drawn = np.random.default_rng(0).integers(repeats, size=(DRAWS, repeats))
    low, high = np.quantile(over_spaces[drawn].mean(1), (0.025, 0.975), axis=0)
    spaces = {name: {str(a): round(float(c.reached[:, a - 1].mean()), 4) for a in at} for name, c in found.items()}
    return {
        "spaces": spaces,
        "mean": _rounded(at, middle),
        "low": _rounded(at, low),
        "high": _rounded(at, high),
        "repeats": repeats,
        "ms_per_trial": round(statistics.fmean(c.ms_per_trial for c in found.values()), 3),
    }


def _rounded(at: Sequence[int], values: np.ndarray[Any, Any]) -> dict[str, float]:
    return {str(a): round(float(value), 4) for a, value in zip(at, values, strict=True)}


# --- what is shown -----------------------------------------------------------------------------------------------------


def table(results: Mapping[str, dict[str, Any]]) -> str:
    at = list(next(iter(results.values()))["mean"])
    lines = [f"| strategy | repeats | {' | '.join(at)} | ms a trial |", f"|---{'|---' * (len(at) + 2)}|"]
    for name, result in results.items():
        figures = " | ".join(f"{result['mean'][a]:.3f} ({result['low'][a]:.3f}–{result['high'][a]:.3f})" for a in at)
        spent = f"{result['ms_per_trial']:.1f}" if result["ms_per_trial"] else "–"
        lines.append(f"| {name} | {result['repeats']} | {figures} | {spent} |")
    return "\n".join(lines)


def table_of_spaces(name: str, result: dict[str, Any]) -> str:
    at = list(result["mean"])
    lines = [f"| {name} | {' | '.join(at)} |", f"|---{'|---' * len(at)}|"]
    lines += [
        f"| {space} | {' | '.join(f'{figures[a]:.3f}' for a in at)} |" for space, figures in result["spaces"].items()
    ]
    return "\n".join(lines)


def machine() -> str:
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())  # fmt: skip
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}"


def written(path: Path, results: Mapping[str, dict[str, Any]], command: str) -> None:
    """The record: `path` as JSON, and beside it the tables."""
    head = {"date": str(datetime.date.today()), "machine": machine(), "command": command}
    path.write_text(json.dumps({**head, "strategies": results}, indent=1) + "\n")
    parts = ["# Optimum ÷ best found", f"{head['date']}, {head['machine']}.\n`{command}`", table(results)]
    parts += [table_of_spaces(name, result) for name, result in results.items()]
    path.with_suffix(".md").write_text("\n\n".join(parts) + "\n")


def chosen(names: Sequence[str]) -> list[str]:
    known = {"recorded": all_recorded, "synthetic": all_synthetic}
    return [one for name in names for one in (known[name]() if name in known else [name])]


def main() -> None:
    parser = argparse.ArgumentParser(description="Play strategies on recorded and synthetic spaces.")
    parser.add_argument("--spaces", nargs="+", default=["recorded"], metavar="FILE",
                        help="files, FILE,FILE for workloads of one space, or: recorded, synthetic")  # fmt: skip
    parser.add_argument("--strategy", action="append", metavar="NAME", help=f"{', '.join(BUILT_IN)}, FILE.py, or all")
    parser.add_argument("--budget", type=int, default=220)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument(
        "--under-way", type=int, default=1, metavar="N", help="how many are asked before the first is told"
    )
    parser.add_argument("--rivals-python", metavar="PATH", help="a Python that has kernel-tuner 1.5")
    parser.add_argument(
        "--rivals", nargs="+", default=list(RIVALS), metavar="NAME", help="Kernel Tuner's names of strategies"
    )
    parser.add_argument("--rivals-repeats", type=int, default=10)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the mean curves as SVG")
    parser.add_argument("--write", type=Path, metavar="FILE.json", help="keep the figures there, and tables beside it")
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    given = parser.parse_args()
    names = given.strategy or ["default"]
    names = [n for n in BUILT_IN if n != "exhaustive"] if names == ["all"] else names
    files = chosen(given.spaces)
    problems = [problem(name) for name in files]
    found: dict[str, dict[str, Curves]] = {}
    for name in names:
        maker = find_strategy(name)
        say(f"{name} …")
        found[name] = {p.name: curves(p, maker, given.budget, given.repeats, given.under_way) for p in problems}
    if given.rivals_python:
        for rival in given.rivals:
            say(f"Kernel Tuner {rival} …")
            label = f"Kernel Tuner {rival}"
            found[label] = {
                p.name: Curves(rival_curves(p, rival, given.rivals_python, given.budget, given.rivals_repeats))
                for p in problems
            }
    results = {name: summary(one, given.budget) for name, one in found.items()}
    if given.plot:
        means = {name: np.mean([c.reached.mean(0) for c in one.values()], axis=0) for name, one in found.items()}
        given.plot.write_text(plotted(means, len(problems)))
    if given.write:
        written(given.write, results, "python benchmarks/search.py " + " ".join(sys.argv[1:]))
    if given.json:
        asked = dict(zip((p.name for p in problems), files, strict=True))  # by the files as they were given
        results = {n: {**r, "spaces": {asked[s]: f for s, f in r["spaces"].items()}} for n, r in results.items()}
        print(json.dumps(next(iter(results.values())) if len(results) == 1 else results))
    else:
        print("\n\n".join([table(results), *(table_of_spaces(name, result) for name, result in results.items())]))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
