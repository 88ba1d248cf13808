"""Every configuration once: the starting points, then the space in random order, so that stopping early is a fair sample."""

from __future__ import annotations

import numpy as np

from tunesmith.errors import UsageError
from tunesmith.space import Space
from tunesmith.template import Config
from tunesmith.trial import Trial

MOST = 10**7


class Exhaustive:
    """All there is."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        count = space.count()
        if not count.exact or count.value > MOST:
            raise UsageError(f"about {count.value:,} configurations are too many for an exhaustive search",
                             hint=f"up to {MOST:,}; use another --strategy")  # fmt: skip
        starts = space.starts()
        begun = {space.key(config) for config in starts}
        order = rng.permutation(count.value)
        rest = (config for i in order if space.key(config := space[int(i)]) not in begun)
        self._configs = iter(starts), rest

    def ask(self) -> Config | None:
        first, rest = self._configs
        return next(first, None) or next(rest, None)

    def tell(self, trial: Trial) -> None:
        pass
