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
from typing import Any

from tunesmith.checker import Checker
from tunesmith.device import START_TIMEOUT_S
from tunesmith.evaluate import CONTENTS
from tunesmith.messages import Candidate, Forget, Host, RunTime
from tunesmith.process import Answer, Child, Died
from tunesmith.task import Workload
from tunesmith.timing import MINIMUM_EFFECT, Ratio, holm, ratio_over_processes

PROCESSES = 7
ROUNDS = 10  # of ABBA, so twice as many samples of each arm
TIMEOUT_S = 120.0

Key = Any  # hashable: what tells cells apart


@dataclass(frozen=True)
class Pairing:
    """One cell: a challenger against the baseline on one workload. Cells are told apart by their keys."""

    workload: Workload
    baseline: Candidate | Host
    challenger: Candidate | Host
    name: Key = ""

    @property
    def key(self) -> Key:
        """By default the workload's name."""
        return self.name or self.workload.name


@dataclass(frozen=True)
class Outcome:
    """What a cell came to: the ratio (above 1: the challenger is faster), times of both arms, whether a win is claimed."""

    ratio: Ratio
    baseline_us: float
    challenger_us: float
    won: bool = False
    lost: bool = False
    reason: str = ""  # why the cell was not played to its end
    logs: tuple[float, ...] = ()  # of the ratio, one per process


NOTHING = Ratio(1.0, 0.0, math.inf)  # of a cell that was not played to its end


@dataclass(frozen=True)
class Played:
    """One cell in one process."""

    baseline_us: float
    challenger_us: float
    ratio: float


Found = Mapping[Key, "Played | str"]  # what one process gave


def play(checker: Checker, pairings: Sequence[Pairing], *, processes: int = PROCESSES, seed: int = 0,
         progress: Callable[[int, int], None] = lambda done, of: None) -> dict[Key, Outcome]:  # fmt: skip
    """Play every cell in that many fresh processes, and say what that comes to."""
    found: list[Found] = []
    for index in range(processes):
        found.append(play_once(checker, pairings, found, seed=seed))
        progress(index + 1, processes)
    return outcomes([p.key for p in pairings], found)


def play_once(checker: Checker, pairings: Sequence[Pairing], before: Sequence[Found], *, seed: int = 0) -> Found:
    """One process more. A cell in which an arm died before, or wrote what it must not, is played no further.

    Every sample of the first process is looked at, two by lot of the others.
    """
    lots = random.Random(f"{seed} {len(before)}")
    failed = {key for one in before for key, played in one.items() if isinstance(played, str)}
    left = [p for p in pairings if p.key not in failed]
    return _one_process(checker, lots.sample(left, len(left)), lots, watched=not before)


def outcomes(keys: Sequence[Key], found: Sequence[Found]) -> dict[Key, Outcome]:
    """What the processes come to; claims hold together (Holm over the cells). A cell that failed claims nothing."""
    ratios: dict[Key, Ratio] = {}
    times: dict[Key, tuple[list[float], list[float]]] = {}
    logs: dict[Key, tuple[float, ...]] = {}
    failed: dict[Key, str] = {}
    for key in keys:
        played = [one[key] for one in found if key in one]
        whole = [one for one in played if isinstance(one, Played)]
        if reasons := [one for one in played if isinstance(one, str)]:
            failed[key] = reasons[0]
        logs[key] = tuple(math.log(one.ratio) for one in whole)
        times[key] = [one.baseline_us for one in whole], [one.challenger_us for one in whole]
        ratios[key] = ratio_over_processes(logs[key]) if whole and key not in failed else NOTHING
    claimed = claims(ratios, times)
    return {key: replace(one, reason=failed.get(key, ""), logs=logs[key]) for key, one in claimed.items()}


def claims(
    ratios: Mapping[Key, Ratio], times: Mapping[Key, tuple[Sequence[float], Sequence[float]]]
) -> dict[Key, Outcome]:
    """Which wins, and which losses, are claimed among these cells."""
    won = holm({name: ratio.p for name, ratio in ratios.items()})
    return {
        name: Outcome(
            ratio, _median(times[name][0]), _median(times[name][1]),
            won=won[name] and ratio.low > 1.0, lost=ratio.high < 1.0 / (1.0 + MINIMUM_EFFECT),
        )
        for name, ratio in ratios.items()
    }  # fmt: skip


def _median(times_us: Sequence[float]) -> float:
    return statistics.median(times_us) if times_us else 0.0


def _one_process(
    checker: Checker, pairings: Sequence[Pairing], lots: random.Random, *, watched: bool
) -> dict[Key, Played | str]:
    """Per cell the times of baseline and challenger, or why there are none."""
    messages = {p.key: replace(_message(checker, p, lots), look_always=watched) for p in pairings}
    answers = ask_fresh(checker, [(p.key, p.workload, messages[p.key]) for p in pairings])
    return {key: _played(checker, messages[key], answer) for key, answer in answers.items()}


def ask_fresh(checker: Checker, asked: Sequence[tuple[Key, Workload, RunTime]]) -> dict[Key, Answer | str]:
    """Time in one fresh process, or say why not. After a death the rest has a new process."""
    device = checker.device
    found: dict[Key, Answer | str] = {}
    opening = replace(device.open_message(), jailed=all(device.jails(message) for _, _, message in asked))
    with device.fresh_process() as child:
        for key, workload, message in asked:
            try:
                if not child.alive:
                    _say(child, opening, START_TIMEOUT_S)
                found[key] = _one_cell(child, checker, workload, message)
            except Died as died:
                child.kill()
                found[key] = str(died)
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


def _one_cell(child: Child, checker: Checker, workload: Workload, message: RunTime) -> Answer | str:
    case = checker.case(workload, exact_alignment=False, contents=CONTENTS)
    _say(child, case, START_TIMEOUT_S)
    answer = _say(child, message, TIMEOUT_S)
    _say(child, Forget(case.key), TIMEOUT_S)
    return checker.timed_reason(answer, workload, CONTENTS) or answer


def _played(checker: Checker, message: RunTime, answer: Answer | str) -> Played | str:
    if isinstance(answer, str):
        return answer
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
