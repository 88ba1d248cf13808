"""What a search is played on without a device: recorded spaces, and synthetic losses over the spaces of real templates.

A recorded space answers with what was measured. A synthetic one takes the parameters, `when`s and constraints of a
template under `suite/`, whose whole space nobody can measure, and makes up a loss: a bowl per parameter around a point near
the default, interactions of pairs, cliffs past which it is many times slower, about a tenth that fails, noise of one
percent, two workloads. Its constants are guesses; it is there to notice what breaks in large spaces, not to fit to.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tunesmith.recorded import Recording
from tunesmith.space import Space
from tunesmith.task import Task
from tunesmith.template import Config, Template
from tunesmith.trial import Cell, Status, Timing, Trial

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
TEMPLATES = ("gemm_bf16/expose_1.cu", "gemm_bf16/template_1.cu", "silu_and_mul/bulk.cu", "topk_softmax/expose_1.cu")
SEEDS = 3  # synthetic losses per template
NOISE = 0.01


@dataclass(frozen=True)
class Problem:
    """A space, what its configurations come to, and the best score there is."""

    name: str
    space: Space
    evaluate: Callable[[Config, int], Trial]
    truth: Callable[[Trial], float]  # the score without noise; 0 where it failed
    optimum: float


def recorded(files: str) -> Problem:
    """One file, or several joined by commas: workloads of one space."""
    recording = Recording.load(*files.split(","))
    names = tuple(p.name for p in recording.space.parameters)
    trials = {key: recording.evaluate(dict(zip(names, key, strict=True))) for key in recording.entries}
    optimum = max(trial.score or 0.0 for trial in trials.values())

    def evaluate(config: Config, number: int) -> Trial:
        return trials[tuple(config[name] for name in names)]

    return Problem(_name(files), recording.space, evaluate, lambda trial: trial.score or 0.0, optimum)


def all_recorded() -> list[str]:
    """The files in `benchmarks/recorded`; the workloads of one template together."""
    alone = [str(path) for path in sorted(RECORDED.glob("*.json.gz"))]
    pairs: dict[str, list[str]] = {}
    for path in sorted((RECORDED / "h200").glob("*.json.gz")):
        pairs.setdefault(path.name.rpartition("_")[0], []).append(str(path))
    return [*alone, *(",".join(files) for files in pairs.values())]


def _name(files: str) -> str:
    return ",".join(Path(file).name.removesuffix(".gz").removesuffix(".json") for file in files.split(","))


# --- synthetic ---------------------------------------------------------------------------------------------------------


def all_synthetic() -> list[str]:
    return [f"synthetic:{template}:{seed}" for template in TEMPLATES for seed in range(SEEDS)]


def problem(name: str) -> Problem:
    """`synthetic:TASK/TEMPLATE:SEED`, or recorded files."""
    kind, _, rest = name.partition(":")
    if kind != "synthetic":
        return recorded(name)
    template, _, seed = rest.partition(":")
    return synthetic(template, int(seed))


@cache
def _space(template: str) -> Space:
    task_name, _, file = template.partition("/")
    folder = HERE.parent / "suite" / task_name
    task = Task.load(folder)
    return Space(Template.load(folder / "templates" / file), task, settings=task.settings(task.workloads[:1]))


def synthetic(template: str, seed: int) -> Problem:
    space, loss = _space(template), Loss(_space(template), seed)
    base = loss.of(space.row(space.template.default)[None, :])[0]

    def evaluate(config: Config, number: int) -> Trial:
        row = space.row(config)
        if loss.fails(row[None, :])[0]:
            return Trial(number, template, config, Status.OVER_LIMITS, "made up")
        times = np.exp(loss.of(row[None, :])[0] - base + NOISE * _luck(row, seed))
        cells = {name: Cell(name, timing=Timing(t, t, t)) for name, t in zip(("small", "large"), times, strict=True)}
        return Trial(number, template, config, Status.OK, cells=cells, score=float(np.exp(-np.log(times).mean())))

    def truth(trial: Trial) -> float:
        if trial.score is None:
            return 0.0
        return float(np.exp((base - loss.of(space.row(trial.config)[None, :])[0]).mean()))

    return Problem(f"synthetic {template} {seed}", space, evaluate, truth, _climbed(space, loss, base))


class Loss:
    """The log of the time of rows, per workload, and which rows fail."""

    def __init__(self, space: Space, seed: int) -> None:
        rng = np.random.default_rng([seed, 7])
        sizes = np.array([len(p.values) for p in space.parameters])
        self.unit = np.maximum(sizes - 1, 1)
        n, default = len(sizes), space.row(space.template.default) / self.unit
        # Two workloads want nearly the same; a few parameters decide most.
        middle = default + rng.normal(0.0, 0.15, n)
        self.middles = np.stack([middle + rng.normal(0.0, 0.05, n) for _ in range(2)])
        self.weights = rng.lognormal(-1.6, 1.0, n)
        pairs = [(i, j) for i in range(n) for j in range(i) if sizes[i] > 1 and sizes[j] > 1]
        self.pairs = np.array([pairs[i] for i in rng.permutation(len(pairs))[: 2 * n]])
        self.pull = rng.normal(0.0, 0.08, len(self.pairs))
        self.phase = rng.uniform(0.0, 2 * math.pi, len(self.pairs))
        self.wave = rng.uniform(1.0, 5.0, (len(self.pairs), 2))
        drawn = space.draw(2000, rng)
        self.slopes = rng.normal(0.0, 1.0, (2, n)) * (rng.random((2, n)) < 0.35)
        at = drawn / self.unit @ self.slopes.T
        own = default @ self.slopes.T
        self.edges = np.maximum(np.quantile(at, (0.8, 0.9), axis=0).diagonal(), own + 0.01)

    def of(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        x = rows / self.unit
        bowls = [((x - middle) ** 2) @ self.weights for middle in self.middles]
        a, b = x[:, self.pairs[:, 0]], x[:, self.pairs[:, 1]]
        between = np.sin(a * self.wave[:, 0] + b * self.wave[:, 1] + self.phase) @ self.pull
        spilled = 3.0 * np.maximum(x @ self.slopes[0] - self.edges[0], 0.0)
        found: np.ndarray[Any, Any] = np.stack([bowl + between + spilled for bowl in bowls], axis=1)
        return found

    def fails(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = rows / self.unit @ self.slopes[1] > self.edges[1]
        return found


def _climbed(space: Space, loss: Loss, base: np.ndarray[Any, Any]) -> float:
    """The best score that many climbs from the default and random places end at: the optimum, as far as one can know."""
    rng = np.random.default_rng(0)
    best = math.inf
    for row in [*(space.row(c) for c in space.starts()), *space.draw(25, rng)]:
        value, here = math.inf, row
        while True:
            near = np.concatenate([space.near(here), here[None, :]])
            near = near[~loss.fails(near)]
            losses = loss.of(near).mean(1) if len(near) else np.array([math.inf])
            if losses.min() >= value:
                break
            value, here = float(losses.min()), near[int(losses.argmin())]
        best = min(best, value)
    return math.exp(float(base.mean()) - best)


def _luck(row: np.ndarray[Any, Any], seed: int) -> float:
    """A normal deviate of the row's own."""
    digest = hashlib.sha256(row.tobytes() + bytes([seed])).digest()
    a, b = (int.from_bytes(digest[i : i + 6], "little") / 2**48 for i in (0, 6))
    return math.sqrt(-2.0 * math.log(a + 1e-12)) * math.cos(2 * math.pi * b)


def problems(names: Sequence[str]) -> list[Problem]:
    return [problem(name) for name in names]
