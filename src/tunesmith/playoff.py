"""The last word on "faster": two arms in turn on the same buffers, in fresh processes, judged over processes.

Nothing measured while searching counts here. Placement varies between processes and not within one, so the unit of
evidence is a process: it plays every cell, roles are drawn by lot, samples go ABBA, and one log ratio per cell comes out.
These processes never hold an expected output, which is why a callable baseline and a candidate may share one; what the
challenger wrote there is given back and judged like any other output.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tunesmith.check import Checker
from tunesmith.device import START_TIMEOUT_S
from tunesmith.evaluate import CONTENTS
from tunesmith.messages import Candidate, Forget, Host, RunTime
from tunesmith.process import Answer, Child, Died
from tunesmith.task import Workload
from tunesmith.timing import MINIMUM_EFFECT, Ratio, holm, ratio_over_processes

PROCESSES = 7
ROUNDS = 10  # of ABBA, so twice as many samples of each arm
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Pairing:
    """One cell: a challenger against the baseline on one workload."""

    workload: Workload
    baseline: Candidate | Host
    challenger: Candidate | Host


@dataclass(frozen=True)
class Outcome:
    """What a cell came to: the ratio (above 1: the challenger is faster), times of both arms, whether a win is claimed."""

    workload: str
    ratio: Ratio
    baseline_us: float
    challenger_us: float
    won: bool = False
    lost: bool = False
    reason: str = ""  # why the cell was not played to its end


NOTHING = Ratio(1.0, 0.0, math.inf)  # of a cell that was not played to its end


@dataclass(frozen=True)
class Played:
    """One cell in one process."""

    baseline_us: float
    challenger_us: float
    ratio: float


def play(checker: Checker, pairings: Sequence[Pairing], *, processes: int = PROCESSES, seed: int = 0,
         progress: Callable[[int, int], None] = lambda done, of: None) -> dict[str, Outcome]:  # fmt: skip
    """Play every cell in that many fresh processes; claims hold together (Holm over the cells).

    A cell in which an arm dies, or writes what it must not, is played no further: it has a reason, and claims nothing.
    """
    lots = random.Random(seed)
    logs: dict[str, list[float]] = {p.workload.name: [] for p in pairings}
    times: dict[str, tuple[list[float], list[float]]] = {p.workload.name: ([], []) for p in pairings}
    failed: dict[str, str] = {}
    for index in range(processes):
        left = [p for p in pairings if p.workload.name not in failed]
        for name, played in _one_process(checker, lots.sample(left, len(left)), lots, watched=index == 0).items():
            if isinstance(played, str):
                failed[name] = played
                continue
            logs[name].append(math.log(played.ratio))
            times[name][0].append(played.baseline_us)
            times[name][1].append(played.challenger_us)
        progress(index + 1, processes)
    ratios = {name: NOTHING if name in failed else ratio_over_processes(found) for name, found in logs.items()}
    return {name: replace(outcome, reason=failed.get(name, "")) for name, outcome in claims(ratios, times).items()}


def claims(
    ratios: Mapping[str, Ratio], times: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> dict[str, Outcome]:
    """Which wins, and which losses, are claimed among these cells."""
    won = holm({name: ratio.p for name, ratio in ratios.items()})
    return {
        name: Outcome(
            name, ratio, _median(times[name][0]), _median(times[name][1]),
            won=won[name] and ratio.low > 1.0, lost=ratio.high < 1.0 / (1.0 + MINIMUM_EFFECT),
        )
        for name, ratio in ratios.items()
    }  # fmt: skip


def _median(times_us: Sequence[float]) -> float:
    return statistics.median(times_us) if times_us else 0.0


def _one_process(
    checker: Checker, pairings: Sequence[Pairing], lots: random.Random, *, watched: bool
) -> dict[str, Played | str]:
    """Per cell the times of baseline and challenger, or why there are none. After a death the rest has a new process.

    Watched: every sample is looked at, not two by lot.
    """
    device = checker.device
    found: dict[str, Played | str] = {}
    messages = {p.workload.name: replace(_message(checker, p, lots), look_always=watched) for p in pairings}
    opening = replace(device.open_message(), jailed=all(device.jails(m) for m in messages.values()))
    with device.fresh_process() as child:
        for pairing in pairings:
            name = pairing.workload.name
            try:
                if not child.alive:
                    _say(child, opening, START_TIMEOUT_S)
                found[name] = _one_cell(child, checker, pairing, messages[name])
            except Died as died:
                child.kill()
                found[name] = str(died)
    return found


def _message(checker: Checker, pairing: Pairing, lots: random.Random) -> RunTime:
    """Both arms by lot in either role, samples ABBA or BAAB; the challenger's output is given back."""
    swapped = lots.random() < 0.5
    rows = checker.oracle.rows(pairing.workload)
    return RunTime(
        checker.case(pairing.workload, exact_alignment=False, contents=CONTENTS).key,
        (pairing.challenger, pairing.baseline) if swapped else (pairing.baseline, pairing.challenger),
        tuple(arm for _ in range(ROUNDS) for arm in ((0, 1, 1, 0) if lots.random() < 0.5 else (1, 0, 0, 1))),
        deterministic=checker.task.deterministic,
        give_back=lots.randrange(1 << 16),
        give_back_arm=0 if swapped else 1,
        rows=None if rows is None else tuple(map(int, rows)),
        row_axes=None if rows is None else checker.row_axes(),
    )


def _one_cell(child: Child, checker: Checker, pairing: Pairing, message: RunTime) -> Played | str:
    case = checker.case(pairing.workload, exact_alignment=False, contents=CONTENTS)
    _say(child, case, START_TIMEOUT_S)
    answer = _say(child, message, TIMEOUT_S)
    _say(child, Forget(case.key), TIMEOUT_S)
    if reason := checker.timed_reason(answer, pairing.workload, CONTENTS):
        return reason
    middle = min if checker.device.kind == "cpu" else statistics.median
    base, challenger = (answer.fields["samples_us"][arm] for arm in (1 - message.give_back_arm, message.give_back_arm))
    return Played(middle(base), middle(challenger), round_ratio(base, challenger))


def round_ratio(base_us: Sequence[float], challenger_us: Sequence[float], per_round: int = 2) -> float:
    """The median over rounds of base ÷ challenger: what drifts does so for both arms of a round.

    (Identical kernels on two CPU cores, standard deviation over processes: ratios of minima 2 to 4 %, of medians 1 to 4 %,
    medians of the rounds' ratios 0.6 %.)
    """
    sums = [
        [sum(times[i : i + per_round]) for i in range(0, len(times), per_round)] for times in (base_us, challenger_us)
    ]
    return float(statistics.median(base / challenger for base, challenger in zip(*sums, strict=True)))


def _say(child: Child, message: object, timeout: float) -> Answer:
    answer = child.ask(message, timeout)
    if problem := answer.fields.get("device_error") or answer.fields.get("error"):
        raise Died(str(problem))
    return answer
