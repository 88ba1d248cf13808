"""Several templates, one budget: which of them gets the next trial. A little for each, then more for those that lead.

Its state is a function of what was asked and told, like a strategy's. Knows scores, nothing of what was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tunesmith.trial import Trial

FIRST = 10  # trials that each template gets before they are compared
STEEP = 12.0  # how fast a template's share falls with how far its best is behind the leader's, in powers of the ratio
LEAST = 0.05  # of the leader's share


@dataclass
class Sharing:
    """Who is owed a trial."""

    names: Sequence[str]
    given: dict[str, int] = field(default_factory=dict)
    under_way: dict[str, int] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)  # had nothing while nothing of theirs was under way
    best: dict[str, float] = field(default_factory=dict)

    def order(self) -> list[str]:
        """The templates that may have something, the one that is owed most first."""
        shares = {name: self._share(name) for name in self.names}
        return sorted(
            (name for name in self.names if name not in self.empty),
            key=lambda name: (self.given.get(name, 0) + 1) / shares[name],
        )

    def asked(self, name: str, given: bool) -> bool:
        """A template was asked, and had something or not. Whether the others had better wait with it.

        One that leads and waits for what is under way keeps its turn: a deep queue would else be filled with the others.
        """
        if given:
            self.given[name] = self.given.get(name, 0) + 1
            self.under_way[name] = self.under_way.get(name, 0) + 1
            return False
        waits = self.under_way.get(name, 0) > 0
        if not waits:
            self.empty.add(name)
        return waits and self._compared

    def told(self, trial: Trial) -> None:
        self.under_way[trial.template] = self.under_way.get(trial.template, 0) - 1
        if trial.score is not None:
            self.best[trial.template] = max(trial.score, self.best.get(trial.template, 0.0))

    @property
    def _compared(self) -> bool:
        return all(self.given.get(name, 0) >= FIRST or name in self.empty for name in self.names)

    def _share(self, name: str) -> float:
        leader = max(self.best.values(), default=0.0)
        if not self._compared or not leader:
            return 1.0
        near: float = (self.best.get(name, 0.0) / leader) ** STEEP
        return max(LEAST, near)
