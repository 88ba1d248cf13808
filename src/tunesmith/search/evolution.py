"""Change a few values of a good configuration, sometimes after crossing it with another; the better ones are the parents.

Begins at the starting points. Parents are the best few, and the best on each workload, whose choices may serve a
general configuration. Without a parent, or where every child was asked before, a random configuration is next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tunesmith.search.memory import Memory
from tunesmith.space import Rows, Space
from tunesmith.template import Config
from tunesmith.trial import Trial

PARENTS = 4
CHANGES = 3  # values that change at most
CROSSED = 0.3  # share of children that have two parents
LITTER = 64  # children that are made until one is legal and new


class Evolution:
    """Steady state: every trial that is told may become a parent."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._memory, self._rng = Memory(space, rng), rng

    def ask(self) -> Config | None:
        return self._memory.start() or self._child() or self._memory.anywhere()

    def tell(self, trial: Trial) -> None:
        self._memory.tell(trial)

    def _child(self) -> Config | None:
        memory, parents = self._memory, self._parents()
        fresh = memory.fresh(children(memory.space, parents, LITTER, self._rng))
        return memory.take(fresh[0]) if len(fresh) else None

    def _parents(self) -> list[Rows]:
        memory = self._memory
        chosen = dict.fromkeys(memory.best(PARENTS))
        fastest: dict[str, tuple[float, int]] = {}
        for i, trial in enumerate(memory.trials):
            for workload, cell in trial.cells.items():
                time = cell.timing.time_us if cell.timing and trial.measured else math.inf
                if time < fastest.get(workload, (math.inf,))[0]:
                    fastest[workload] = time, i
        chosen.update(dict.fromkeys(i for _, i in fastest.values()))
        return [memory.rows[i] for i in chosen]


def children(space: Space, parents: Sequence[Rows], number: int, rng: np.random.Generator) -> Rows:
    """The legal ones among so many children: a parent, perhaps crossed with another, with a few values changed."""
    sizes = np.array([len(p.values) for p in space.parameters])
    several = np.flatnonzero(sizes > 1)
    if not len(parents) or not len(several):
        return np.zeros((0, len(sizes)), np.uint16)
    stock = np.array(parents)
    made, others = (stock[rng.integers(len(stock), size=number)] for _ in range(2))
    crossed = (rng.random((number, 1)) < CROSSED) & (rng.random(made.shape) < 0.5)
    made = np.where(crossed, others, made).astype(np.int64)
    order = rng.random((number, len(several))).argsort(1)
    changed = order < rng.integers(1, CHANGES + 1, (number, 1))
    step = rng.integers(1, np.maximum(sizes[several], 2), (number, len(several)))
    made[:, several] = (made[:, several] + changed * step) % sizes[several]
    folded = space.fold_rows(made)
    legal: Rows = folded[space.legal(folded)]
    return legal
