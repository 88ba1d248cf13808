"""What a strategy remembers: the rows that were asked, those that are under way, and what became of the others.

Rows are folded, so that two spellings of one configuration are one row. A loss is minus the logarithm of the score: the
log of the time, up to a constant; `behind` counts with its bound, a failure has none. Knows how to pick what was not
asked before, by chance or by a starting point, and nothing of models.
"""

from __future__ import annotations

import math

import numpy as np

from tunesmith.space import Rows, Space
from tunesmith.template import Config
from tunesmith.trial import Trial

AT_ONCE = 64  # rows drawn at a time


class Memory:
    """The rows asked and the trials told, in their order."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self.space, self.rng = space, rng
        self.asked: set[bytes] = set()
        self.under_way: dict[bytes, Rows] = {}
        self.rows: list[Rows] = []  # told
        self.trials: list[Trial] = []
        self.losses: list[float] = []  # nan where the trial failed
        self.starts = [space.row(config) for config in space.starts()]
        self._later = list(self.starts)
        self._drawn: list[Rows] = []

    def take(self, row: Rows) -> Config:
        """Ask this row."""
        self.asked.add(row.tobytes())
        self.under_way[row.tobytes()] = row
        return self.space.config(row)

    def tell(self, trial: Trial) -> Rows:
        """Note what became of a configuration, and give its row."""
        row = self.space.row(trial.config)
        self.asked.add(row.tobytes())
        self.under_way.pop(row.tobytes(), None)
        self.rows.append(row)
        self.trials.append(trial)
        self.losses.append(math.nan if trial.estimate is None else -math.log(trial.estimate))
        return row

    def fresh(self, rows: Rows) -> Rows:
        """Those of the rows that were not asked, each once."""
        distinct = {row.tobytes(): row for row in rows}
        kept = [row for key, row in distinct.items() if key not in self.asked]
        return np.array(kept, np.uint16).reshape(len(kept), rows.shape[1])

    def start(self) -> Config | None:
        """The next starting point; None when all were asked."""
        while self._later:
            row = self._later.pop(0)
            if row.tobytes() not in self.asked:
                return self.take(row)
        return None

    def anywhere(self) -> Config | None:
        """A random configuration that was not asked; None where as good as nothing is left."""
        while True:
            while self._drawn:
                row = self._drawn.pop()
                if row.tobytes() not in self.asked:
                    return self.take(row)
            few = self.space.enumerated and len(self.space) <= 2 * (len(self.asked) + AT_ONCE)
            drawn = self.space.draw(len(self.space) if few else AT_ONCE, self.rng)
            self._drawn = list(self.fresh(drawn))
            if not self._drawn:
                return None

    def best(self, number: int) -> list[int]:
        """The numbers of the best trials that were measured, the best first."""
        measured = [i for i, trial in enumerate(self.trials) if trial.measured]
        return sorted(measured, key=lambda i: self.losses[i])[:number]
