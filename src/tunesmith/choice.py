"""Which finalists are chosen: one general configuration, and the few that serve each workload.

Works on times of finalists that were measured side by side. Inside the noise band the choice is canonical, so that a
rerun chooses the same: the fewest kernels, then what is closest to its template's default. Claims nothing: what is
chosen is verified and played off afterwards.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Container, Mapping, Sequence
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
    """The trials worth measuring again: the best by score, and the best on each workload.

    One that was stopped as behind may be the best where it was measured: a table is made of such.
    """
    scored = sorted(
        (t for t in trials if t.score is not None and t.status is Status.OK), key=lambda t: -(t.score or 0.0)
    )
    chosen = {t.number: None for t in scored[:general]}
    seen = [t for t in trials if t.status in (Status.OK, Status.BEHIND)]
    for workload in dict.fromkeys(name for t in seen for name in t.cells):
        right = [(t, cell) for t in seen if (cell := t.cells.get(workload)) and cell.status is Status.OK]
        timed = sorted((cell.timing.time_us, t.number) for t, cell in right if cell.timing)
        chosen.update({number: None for _, number in timed[:each]})
    return list(chosen)


def logs(finals: Sequence[tuple[str, Mapping[int, float]]]) -> dict[str, dict[int, list[float]]]:
    """Log times against the baseline's in the same process."""
    found: dict[str, dict[int, list[float]]] = {}
    for workload, times in finals:
        for number, us in times.items():
            found.setdefault(workload, {}).setdefault(number, []).append(math.log(us / times[BASELINE]))
    return found


def total(
    log_times: Mapping[str, float], weights: Mapping[str, float], base_us: Mapping[str, float] | None = None
) -> float:
    """Log times against the baseline's, over all workloads: their weighted mean; with `base_us`, of the total times."""
    if base_us is None:
        return sum(weights[w] * log for w, log in log_times.items()) / sum(weights[w] for w in log_times)
    mine = sum(weights[w] * base_us[w] * math.exp(log) for w, log in log_times.items())
    return math.log(mine / sum(weights[w] * base_us[w] for w in log_times))


def choose(found: Logs, weights: Mapping[str, float], defaults: Mapping[int, int], *, without: Sequence[int] = (),
           max_kernels: int = 4, alone: bool = False, base_us: Mapping[str, float] | None = None) -> Choice:  # fmt: skip
    """The general configuration, and the choice per workload. `defaults`: how many values differ from the default.

    `alone`: one kernel has to serve everything, whatever the workload.
    """
    numbers = sorted({n for times in found.values() for n in times} - {BASELINE, *without})
    if alone:
        numbers = [n for n in numbers if all(n in times for times in found.values())]
    if not numbers:
        return Choice(None, {})

    def scores(serving: Mapping[str, int]) -> list[float]:
        """Per process, what it comes to if these serve; where none does, the baseline."""
        count = min(len(times[serving.get(w, BASELINE)]) for w, times in found.items())
        each = [{w: times[serving.get(w, BASELINE)][p] for w, times in found.items()} for p in range(count)]
        return [total(one, weights, base_us) for one in each]

    def where(number: int) -> dict[str, int]:
        return {w: number for w, times in found.items() if number in times}

    general = canonical({n: scores(where(n)) for n in numbers}, defaults)
    cells = where(general)
    kernels = {general}
    while not alone and len(kernels) < max_kernels:
        better = {n: _better(n, cells, found) for n in numbers if n not in kernels}
        worth = {
            n: scores({**_useful(cells, found), **dict.fromkeys(places, n)}) for n, places in better.items() if places
        }
        if not worth:
            break
        best = canonical(worth, defaults)
        kernels.add(best)
        cells.update(dict.fromkeys(better[best], best))
    return Choice(general, cells)


def _better(number: int, cells: Mapping[str, int], found: Logs) -> list[str]:
    """Where this one serves better than what serves now, or than the baseline if that does, by more than the minimum effect."""
    places = []
    for workload, times in found.items():
        now = min(statistics.mean(times[n]) for n in (BASELINE, cells.get(workload, BASELINE)))
        if number in times and now - statistics.mean(times[number]) > math.log1p(MINIMUM_EFFECT):
            places.append(workload)
    return places


def _useful(cells: Mapping[str, int], found: Logs) -> dict[str, int]:
    """What serves now, where it is faster than the baseline."""
    return {w: n for w, n in cells.items() if statistics.mean(found[w][n]) < statistics.mean(found[w][BASELINE])}


def canonical(scores: Mapping[int, Sequence[float]], defaults: Mapping[int, int]) -> int:
    """Of those that cannot be told from the best (lower is better), the one closest to its default."""
    best = min(scores, key=lambda n: (statistics.mean(scores[n]), n))
    near = [n for n in scores if _indistinct(scores[best], scores[n])]
    return min(near, key=lambda n: (defaults[n], statistics.mean(scores[n]), n))


def _indistinct(best: Sequence[float], other: Sequence[float]) -> bool:
    apart = [b - a for a, b in zip(best, other, strict=False)]  # a process may be missing where an arm died
    mean = statistics.mean(apart)
    if mean <= SURE:
        return True
    return mean <= math.log1p(MINIMUM_EFFECT) and len(apart) > 1 and ratio_over_processes(apart).low <= 1.0


def changed(config: Config, default: Config) -> int:
    """How many values differ."""
    return sum(config[name] != value for name, value in default.items())


def places(choice: Choice, served: Container[tuple[int, str]]) -> list[tuple[int, str]]:
    """Where the chosen are used, each place once: the table's cells, then the general configuration elsewhere."""
    table = [(number, workload) for workload, number in choice.cells.items()]
    general = [] if choice.general is None else [(choice.general, workload) for workload in choice.cells]
    return [place for place in dict.fromkeys(table + general) if place in served]
