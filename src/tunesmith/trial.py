"""What became of one configuration: its status, why, and per workload a cell with times and what the check found.

Plain records, and the arithmetic of a score. A failure is data here: nothing in this file raises for a bad candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tunesmith.build import Kernel
from tunesmith.task import Setting


class Status(StrEnum):
    """How far a trial came; each but the last names the gate that stopped it."""

    ILLEGAL = "illegal"  # a constraint does not hold
    UNSAFE = "unsafe"  # the source asks for something that no candidate may have
    BUILD_FAILED = "build_failed"
    OVER_LIMITS = "over_limits"  # the device cannot launch it
    DUPLICATE = "duplicate"  # the same machine code with the same launches was measured already
    CRASHED = "crashed"
    HUNG = "hung"
    WRONG = "wrong"
    NONDETERMINISTIC = "nondeterministic"
    IMPOSSIBLE = "impossible"  # faster than the device can be: something is amiss
    BEHIND = "behind"  # stopped early, clearly slower: there is a bound, never a score
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one configuration on one workload: the figure, its interval, and the samples behind it."""

    time_us: float
    low_us: float
    high_us: float
    samples_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration on one workload. A configuration may fail here and serve elsewhere."""

    workload: str
    status: Status = Status.OK
    reason: str = ""
    timing: Timing | None = None
    error: float = 0.0  # of the worst output, in units of what its tolerance allows
    occupancy: float = 0.0  # of the first launch
    target_fraction: float | None = None


@dataclass(frozen=True)
class Trial:
    """One configuration of one template, taken through the gates."""

    number: int
    template: str
    config: Mapping[str, int | str]
    status: Status
    reason: str = ""  # one line; for a person
    log: str = ""  # what the compiler or the device said
    resources: Mapping[Setting, tuple[Kernel, ...]] = field(default_factory=dict)
    cells: Mapping[str, Cell] = field(default_factory=dict)  # by workload
    twin: int | None = None  # of a duplicate: the trial that was measured
    bound: float | None = (
        None  # of one that is behind: its score, if all that was not measured came out as the best did
    )
    score: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)  # per stage: build, check, time
    identity: str = ""  # equal for the same machine code with the same launches everywhere

    @property
    def measured(self) -> bool:
        """Whether it has a score: it passed every gate, itself or through its twin."""
        return self.score is not None

    @property
    def estimate(self) -> float | None:
        """What a model may learn from: the score, or the bound of one that is behind; None of one that failed."""
        return self.score if self.score is not None else self.bound


def score(times_us: Mapping[str, float], baseline_us: Mapping[str, float], weights: Mapping[str, float],
          kind: str = "speedup") -> float:  # fmt: skip
    """How much faster than the baseline: the weighted geometric mean of speedups, or the ratio of weighted total times.

    A time of zero or less is no measurement, and a workload without one is no win: both raise.
    """
    if not times_us or set(times_us) != set(baseline_us) or kind not in ("speedup", "time"):
        raise ValueError(f"a score ({kind}) of {sorted(times_us)} against {sorted(baseline_us)}")
    if any(not 0 < t < math.inf for t in (*times_us.values(), *baseline_us.values())):
        raise ValueError(f"a time that is no measurement: {dict(times_us)} against {dict(baseline_us)}")
    names: Sequence[str] = list(times_us)
    total = sum(weights[n] for n in names)
    if kind == "time":
        return sum(weights[n] * baseline_us[n] for n in names) / sum(weights[n] * times_us[n] for n in names)
    return math.exp(sum(weights[n] * math.log(baseline_us[n] / times_us[n]) for n in names) / total)


@dataclass(frozen=True)
class Incumbent:
    """What a trial is raced against: the best score so far, and per workload the best time."""

    score: float
    best_us: Mapping[str, float]

    def at_most(self, times_us: Mapping[str, float], baseline_us: Mapping[str, float], weights: Mapping[str, float],
                kind: str = "speedup") -> float | None:  # fmt: skip
        """The score of these times if all that is not measured yet came out as the best did; None where that is not known."""
        hoped = {**{name: self.best_us[name] for name in baseline_us if name in self.best_us}, **times_us}
        return score(hoped, baseline_us, weights, kind) if set(hoped) == set(baseline_us) else None

    def behind_us(self, workload: str, times_us: Mapping[str, float], baseline_us: Mapping[str, float],
                  weights: Mapping[str, float], kind: str, margin: float) -> float | None:  # fmt: skip
        """How slow a workload may be before neither the score nor this workload's own best time is within the margin."""
        best = self.best_us.get(workload)
        if best is None or self.at_most({**times_us, workload: best}, baseline_us, weights, kind) is None:
            return None

        def hopeless(us: float) -> bool:
            hoped = self.at_most({**times_us, workload: us}, baseline_us, weights, kind)
            return hoped is not None and hoped * margin < self.score

        low = high = best * margin
        while not hopeless(high) and high < best * 1e4:
            low, high = high, high * 2
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if hopeless(middle) else (middle, high)
        return high
