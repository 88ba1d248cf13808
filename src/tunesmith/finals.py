"""Near ties measured again before one is chosen: all finalists in turn on the same buffers, in a fresh process.

A search sees each configuration once, in one process, at one moment; among hundreds the winner of a single pass is partly
luck. Times from here choose; only a play-off claims. Knows candidates and times, not what is made of them.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence

from tunesmith.checker import Checker
from tunesmith.evaluate import CONTENTS
from tunesmith.messages import Candidate, Host, RunTime
from tunesmith.playoff import ask_fresh
from tunesmith.task import Workload

ROUNDS = {"gpu": 15, "cpu": 8}
PROCESSES = 3
Arms = Mapping[int, Candidate | Host]  # by the number of the trial; the baseline is 0


def time_together(
    checker: Checker, cells: Sequence[tuple[Workload, Arms]], *, seed: int
) -> dict[str, dict[int, float] | str]:
    """Per workload the time of each arm in one fresh process, or why there is none."""
    lots = random.Random(seed)
    kind = checker.device.kind
    orders = {
        w.name: [i for _ in range(ROUNDS[kind]) for i in lots.sample(range(len(arms)), len(arms))] for w, arms in cells
    }
    asked = [(w.name, w, _message(checker, w, arms, orders[w.name])) for w, arms in lots.sample(cells, len(cells))]
    answers = ask_fresh(checker, asked)
    found: dict[str, dict[int, float] | str] = {}
    for workload, arms in cells:
        answer = answers[workload.name]
        if isinstance(answer, str):
            found[workload.name] = answer
            continue
        middle = min if kind == "cpu" else statistics.median
        samples = answer.fields["samples_us"]
        found[workload.name] = {n: middle(us) for n, us in zip(arms, samples, strict=True)}
    return found


def _message(checker: Checker, workload: Workload, arms: Arms, order: Sequence[int]) -> RunTime:
    case = checker.case(workload, exact_alignment=False, contents=CONTENTS)
    return RunTime(case.key, tuple(arms.values()), tuple(order), deterministic=checker.task.deterministic)
