"""Uniform random samples after the starting points: the line that every other strategy has to beat."""

from __future__ import annotations

import numpy as np

from tunesmith.search.memory import Memory
from tunesmith.space import Space
from tunesmith.template import Config
from tunesmith.trial import Trial


class Random:
    """Learns nothing."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._memory = Memory(space, rng)

    def ask(self) -> Config | None:
        return self._memory.start() or self._memory.anywhere()

    def tell(self, trial: Trial) -> None:
        self._memory.tell(trial)
