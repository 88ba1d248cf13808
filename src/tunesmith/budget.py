"""What a search may spend, and when it had better stop by itself. Knows a run's figures, no clocks and no devices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from tunesmith.errors import UsageError
from tunesmith.trial import Status, Trial

TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)$")
COUNTED = re.compile(r"(\d+(?:\.\d+)?)\s*(trials?|device-s|calls?)$")
UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
DEFAULT = "5m"

QUIET = 150  # trials without progress after which a search ends by itself, at least
QUIET_SHARE = 0.5  # and this share of all trials
MOVED = 0.005  # what counts as progress
NEAR_TARGET = 1.0  # at this share of the target on every workload there is nothing left to ask for


@dataclass(frozen=True)
class Budget:
    """Limits of which the first that is reached ends a search; None is no limit."""

    seconds: float | None = None
    trials: int | None = None
    device_s: float | None = None
    calls: int | None = None  # of models

    @staticmethod
    def parse(texts: Iterable[str]) -> Budget:
        """`5m`, `200trials`, `60device-s`, `8calls`; several may be given."""
        given: dict[str, float] = {}
        for text in texts or (DEFAULT,):
            name, value = _limit(text.strip())
            if name in given:
                raise UsageError(f"--budget {text}: {name.replace('_', ' ')} is given twice")
            given[name] = value
        whole = {name: int(value) for name, value in given.items() if name in ("trials", "calls")}
        return Budget(**{**given, **whole})  # type: ignore[arg-type]

    def over(self, *, seconds: float, asked: int, device_s: float) -> str:
        """Which limit is reached, in words; "" while none is."""
        if self.trials is not None and asked >= self.trials:
            return f"the budget of {self.trials} trials is spent"
        if self.seconds is not None and seconds >= self.seconds:
            return f"the budget of {self.seconds:g} s is spent"
        if self.device_s is not None and device_s >= self.device_s:
            return f"the budget of {self.device_s:g} seconds of the device is spent"
        return ""

    def spent(self, *, seconds: float, asked: int, device_s: float) -> float:
        """The share of the tightest limit that is spent, from 0 to 1."""
        parts = ((seconds, self.seconds), (asked, self.trials), (device_s, self.device_s))
        return min(1.0, max((used / limit for used, limit in parts if limit), default=0.0))

    def __str__(self) -> str:
        units = {"seconds": "s", "trials": "trials", "device_s": "device-s", "calls": "calls"}
        given = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return " ".join(f"{value:g}{units[name]}" for name, value in given if value is not None)


def _limit(text: str) -> tuple[str, float]:
    if found := TIME.match(text):
        name, value = "seconds", float(found[1]) * UNITS_S[found[2]]
    elif found := COUNTED.match(text):
        names = {"trial": "trials", "trials": "trials", "device-s": "device_s", "call": "calls", "calls": "calls"}
        name, value = names[found[2]], float(found[1])
    else:
        raise UsageError(
            f"--budget {text!r} is no budget", hint="5m, 90s, 200trials, 60device-s or 8calls; several may be given"
        )
    if value <= 0 or (name in ("trials", "calls") and value != int(value)):
        raise UsageError(f"--budget {text!r}: more than nothing, and trials in whole numbers")
    return name, value


def enough(trials: Sequence[Trial], legal: int | None, workloads: Sequence[str], *, patient: bool = False) -> str:
    """Why a search may as well end now, in words; "" while it had better go on.

    `legal` is how many configurations there are, where that is known exactly; who is `patient` ends only with them.
    """
    if legal is not None and len(trials) >= legal:
        return f"all {legal} legal configurations were tried"
    best = progress(trials)
    if not best or patient:
        return ""
    fractions = _fractions(trials, workloads, surely=True)
    if fractions and min(fractions) >= NEAR_TARGET:
        return f"the target is reached: {min(fractions):.2f} of it or more on every workload"
    quiet = len(trials) - best[-1][0]
    if quiet >= max(QUIET, QUIET_SHARE * len(trials)):
        return f"nothing moved for {quiet} trials; {outlook(trials, workloads)}"
    return ""


def _fractions(trials: Sequence[Trial], workloads: Sequence[str], *, surely: bool = False) -> list[float]:
    """How much of the target the best trial reaches on each workload, or `surely` does: by the slow end of its interval.

    Nothing where that is not known of all workloads.
    """
    leader = max((t for t in trials if t.measured), key=lambda t: t.score or 0.0, default=None)
    found = []
    for cell in (leader.cells.get(name) for name in workloads) if leader else ():
        if cell is None or cell.timing is None or not cell.target_fraction:
            return []
        found.append(cell.target_fraction * (cell.timing.time_us / cell.timing.high_us if surely else 1.0))
    return found


def progress(trials: Sequence[Trial]) -> list[tuple[int, float]]:
    """After how many trials the best score rose by more than noise, and to what."""
    found: list[tuple[int, float]] = []
    for count, trial in enumerate(trials, 1):
        if trial.score is None or trial.status is Status.DUPLICATE:
            continue
        if not found or trial.score > found[-1][1] * (1 + MOVED):
            found.append((count, trial.score))
    return found


def outlook(trials: Sequence[Trial], workloads: Sequence[str]) -> str:
    """What is still to be gained, as far as the search itself shows: what its second half brought, and what the target allows."""
    half = progress(trials[: len(trials) // 2])
    best = progress(trials)
    parts = []
    if half and best:
        parts.append(f"the second half of the trials brought {100 * (best[-1][1] / half[-1][1] - 1):.1f} %")
    if fractions := _fractions(trials, workloads):
        mean = math.exp(sum(map(math.log, fractions)) / len(fractions))
        parts.append(f"the target is {1 / mean:.2f}x away" if mean < 1 else "the target is reached")
    return "; ".join(parts)
