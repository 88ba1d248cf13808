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
    best: dict[str, float] = field(default_factory=dict)  # by score, and by workload where one is best

    def order(self) -> list[str]:
        """The templates, the one that is owed most first."""
        shares = {name: self._share(name) for name in self.names}
        return sorted(self.names, key=lambda name: (self.given.get(name, 0) + 1) / shares[name])

    def asked(self, name: str, given: bool) -> None:
        """A template was asked, and had something."""
        self.given[name] = self.given.get(name, 0) + given

    def told(self, trial: Trial) -> None:
        if trial.score is not None:
            self.best[trial.template] = max(trial.score, self.best.get(trial.template, 0.0))

    def _share(self, name: str) -> float:
        if min(self.given.get(n, 0) for n in self.names) < FIRST:
            return 1.0
        leader = max(self.best.values(), default=0.0)
        return max(LEAST, (self.best.get(name, 0.0) / leader) ** STEEP) if leader else 1.0
