"""Which finalists are chosen: one general configuration, and the few that serve each workload.

Works on times of finalists that were measured side by side. Inside the noise band the choice is canonical, so that a
rerun chooses the same: the fewest kernels, then what is closest to its template's default. Claims nothing: what is
chosen is verified and played off afterwards.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunesmith.template import Config
from tunesmith.timing import MINIMUM_EFFECT, ratio_over_processes
from tunesmith.trial import Status, Trial

GENERAL, EACH = 8, 2  # finalists by score, and by time on each workload
SURE = 0.003  # nearer than this no measurement of ours tells two apart
BASELINE = 0  # its number among the finalists

Logs = Mapping[str, Mapping[int, Sequence[float]]]  # workload: finalist: log time against the baseline's, per process


@dataclass(frozen=True)
class Choice:
    """Which trial is the general configuration, and which serves each workload in the table."""

    general: int | None
    cells: Mapping[str, int]


def finalists(trials: Sequence[Trial], general: int = GENERAL, each: int = EACH) -> list[int]:
    """The trials worth measuring again: the best by score, and the best on each workload."""
    seen = [t for t in trials if t.status is Status.OK]
    scored = sorted((t for t in seen if t.score is not None), key=lambda t: -(t.score or 0.0))[:general]
    chosen = {t.number: None for t in scored}
    for workload in dict.fromkeys(name for t in seen for name in t.cells):
        timed = [(cell.timing.time_us, t.number) for t in seen if (cell := t.cells.get(workload)) and cell.timing]
        chosen.update({number: None for _, number in sorted(timed)[:each]})
    return list(chosen)


def logs(finals: Sequence[tuple[str, Mapping[int, float]]]) -> dict[str, dict[int, list[float]]]:
    """Log times against the baseline's in the same process."""
    found: dict[str, dict[int, list[float]]] = {}
    for workload, times in finals:
        for number, us in times.items():
            found.setdefault(workload, {}).setdefault(number, []).append(math.log(us / times[BASELINE]))
    return found


def choose(found: Logs, weights: Mapping[str, float], defaults: Mapping[int, int], *, without: Sequence[int] = (),
           max_kernels: int = 4, alone: bool = False) -> Choice:  # fmt: skip
    """The general configuration, and the choice per workload. `defaults`: how many values differ from the default.

    `alone`: one kernel has to serve everything, whatever the workload.
    """
    numbers = sorted({n for times in found.values() for n in times} - {BASELINE, *without})
    if not numbers:
        return Choice(None, {})
    total = sum(weights[w] for w in found)

    def score(number: int) -> list[float]:
        """Per process the weighted mean log time; where it does not serve, the baseline does."""
        parts = [(weights[w] / total, times.get(number, times[BASELINE])) for w, times in found.items()]
        count = min(len(part) for _, part in parts)
        return [sum(share * part[p] for share, part in parts) for p in range(count)]

    general = canonical({n: score(n) for n in numbers}, defaults)
    cells = {w: general for w, times in found.items() if general in times}
    kernels = {general}
    while not alone and len(kernels) < max_kernels:
        gains = {n: _gains(n, cells, found, weights, set(without)) for n in numbers if n not in kernels}
        best = max(gains, key=lambda n: (sum(gains[n].values()), -defaults[n], -n), default=None)
        if best is None or not gains[best]:
            break
        near = {n: [-sum(g.values())] for n, g in gains.items() if set(g) == set(gains[best])}
        best = canonical(near, defaults)
        kernels.add(best)
        cells.update(dict.fromkeys(gains[best], best))
    return Choice(general, cells)


def _gains(
    number: int, cells: Mapping[str, int], found: Logs, weights: Mapping[str, float], without: set[int]
) -> dict[str, float]:
    """Where this one would serve better than what serves now, by more than the minimum effect: the weighted log gain."""
    gains = {}
    for workload, times in found.items():
        if number in times and number not in without:
            now = statistics.mean(times[cells.get(workload, BASELINE)])
            gain = now - statistics.mean(times[number])
            if gain > math.log1p(MINIMUM_EFFECT):
                gains[workload] = weights[workload] * gain
    return gains


def canonical(scores: Mapping[int, Sequence[float]], defaults: Mapping[int, int]) -> int:
    """Of those that cannot be told from the best (lower is better), the one closest to its default."""
    best = min(scores, key=lambda n: (statistics.mean(scores[n]), n))
    near = [n for n in scores if _indistinct(scores[best], scores[n])]
    return min(near, key=lambda n: (defaults[n], statistics.mean(scores[n]), n))


def _indistinct(best: Sequence[float], other: Sequence[float]) -> bool:
    apart = [b - a for a, b in zip(best, other, strict=True)]
    mean = statistics.mean(apart)
    if mean <= SURE:
        return True
    return mean <= math.log1p(MINIMUM_EFFECT) and len(apart) > 1 and ratio_over_processes(apart).low <= 1.0


def changed(config: Config, default: Config) -> int:
    """How many values differ."""
    return sum(config[name] != value for name, value in default.items())


def places(choice: Choice) -> list[tuple[int, str]]:
    """Where the chosen are used, each place once: the table's cells, then the general configuration elsewhere."""
    table = [(number, workload) for workload, number in choice.cells.items()]
    general = [] if choice.general is None else [(choice.general, workload) for workload in choice.cells]
    return list(dict.fromkeys(table + general))
