"""Walk from a configuration to a neighbour of it; a worse one is accepted the less often the later it is.

Begins at the starting points and walks from the best of them. A value moves to the next ones in its list, unless all
of those were asked: then to any other. With several under way it keeps proposing neighbours of where it stands. Where
nothing is left around, and after a long time without progress, it goes on from the best.
"""

from __future__ import annotations

import math

import numpy as np

from tunesmith.search.memory import Memory
from tunesmith.space import Rows, Space
from tunesmith.template import Config
from tunesmith.trial import Trial

HOT, COLD = 0.3, 0.01  # of the log of the time: what is accepted with 1/e at the beginning, and at last
COOLING = 0.97  # per trial
PATIENCE = 20  # trials without a new best


class Annealing:
    """One walk."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._memory, self._rng = Memory(space, rng), rng
        self._here: Rows | None = None
        self._loss = self._best = math.inf
        self._idle = 0

    def ask(self) -> Config | None:
        return self._memory.start() or self._step() or self._memory.anywhere()

    def tell(self, trial: Trial) -> None:
        row = self._memory.tell(trial)
        self._idle += 1
        loss = self._memory.losses[-1]
        if trial.measured and self._accepts(loss):
            self._here, self._loss = row, loss
        if trial.measured and loss < self._best:
            self._best, self._idle = loss, 0
        if self._idle >= PATIENCE:
            self._back()

    def _accepts(self, loss: float) -> bool:
        temperature = max(COLD, HOT * COOLING ** len(self._memory.rows))
        return loss < self._loss or bool(self._rng.random() < math.exp((self._loss - loss) / temperature))

    def _back(self) -> None:
        """Stand at one of the best again."""
        self._idle = 0
        if best := self._memory.best(1):
            self._here, self._loss = self._memory.rows[best[0]], self._memory.losses[best[0]]

    def _step(self) -> Config | None:
        for at in self._stands():
            for adjacent in (True, False):
                near = self._memory.fresh(self._memory.space.near(at, adjacent))
                if len(near):
                    return self._memory.take(near[self._rng.integers(len(near))])
        return None

    def _stands(self) -> list[Rows]:
        """Where to step from: here, or from a good one if all around here was asked."""
        if self._here is None:
            return []
        return [self._here, *(self._memory.rows[i] for i in self._memory.best(8))]
