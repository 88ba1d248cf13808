"""A plain sweep over a template's space: starting points, then uniform samples, the best measured again.

It stands where a search will: the loop is the one that every strategy shares, and what it finds is claimed by a play-off
like anything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tunesmith.binding import Binding
from tunesmith.evaluate import Evaluator
from tunesmith.pipeline import Pipeline
from tunesmith.space import Space
from tunesmith.task import Workload
from tunesmith.template import Config
from tunesmith.trial import Status, Trial


@dataclass
class Sweep:
    """What a sweep saw."""

    trials: list[Trial] = field(default_factory=list)
    seconds: float = 0.0
    device_seconds: float = 0.0

    @property
    def best(self) -> Trial | None:
        scored = [t for t in self.trials if t.score is not None and t.status is Status.OK]
        return max(scored, key=lambda t: t.score or 0.0, default=None)

    def by_status(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for trial in self.trials:
            counts[str(trial.status)] = counts.get(str(trial.status), 0) + 1
        return counts


def sweep(evaluator: Evaluator, binding: Binding, space: Space, workloads: Sequence[Workload], *, seconds: float,
          most: int = 10_000, seed: int = 0, progress: Callable[[Sweep], None] = lambda _: None) -> Sweep:  # fmt: skip
    """Try configurations until the time is over, or `most` of them."""
    found = Sweep()
    pipeline = Pipeline(evaluator, workloads)
    started = time.monotonic()
    configs = _configurations(space, seed)

    def ask() -> tuple[Binding, Config] | None:
        over = time.monotonic() - started > seconds or pipeline.asked >= most
        config = None if over else next(configs, None)
        return None if config is None else (binding, config)

    try:
        pipeline.fill(ask)
        while (trial := pipeline.next()) is not None:
            found.trials.append(trial)
            found.seconds, found.device_seconds = time.monotonic() - started, pipeline.busy_s
            progress(found)
            pipeline.fill(ask)
    finally:
        pipeline.close()
    return found


def _configurations(space: Space, seed: int) -> Iterator[Config]:
    rng = np.random.default_rng(seed)
    seen = set()
    pending = list(space.starts())
    while True:
        for config in pending:
            key = space.key(config)
            if key not in seen:
                seen.add(key)
                yield config
        pending = space.sample(64, rng)
        if all(space.key(config) in seen for config in pending):
            return
