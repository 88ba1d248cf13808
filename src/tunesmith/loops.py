"""The loop of stage 2, written down: ask a strategy, try it, tell it; then choose, verify, and prove.

Every step writes what it did to the run's journal, and skips what the journal holds already: that is all there is to
going on with a run that was interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tunesmith.arena import Arena, Asked, Live
from tunesmith.budget import Budget, enough
from tunesmith.choice import BASELINE, Choice, changed, choose, finalists, logs, places
from tunesmith.errors import TunesmithError, UsageError
from tunesmith.finals import PROCESSES as FINALS
from tunesmith.journal import plain, trial_fields
from tunesmith.playoff import PROCESSES as PLAYS
from tunesmith.run import Baseline, Run
from tunesmith.search import Strategy, find_strategy
from tunesmith.sharing import Sharing
from tunesmith.template import Config
from tunesmith.trial import Incumbent, Status, Trial


def search(run: Run, arena: Arena) -> None:
    """Stage 2 from the first baseline to the proof."""
    run.emit("open", sync=True, device=arena.describe())
    live = arena if isinstance(arena, Live) and arena.proves else None
    if live is not None:
        test_the_tester(run, live)
    face_the_baseline(run, arena, live)
    if not run.stopped:
        explore(run, arena)
    if live is None:
        run.emit("end", sync=True, reason=f"nothing is proven: {arena.describe()['id']} runs no kernels")
        return
    choose_finalists(run, live)
    prove(run, live)
    run.emit("end", sync=True, reason="proven" if run.plays else "nothing stood up to being verified")


def test_the_tester(run: Run, arena: Live) -> None:
    """Wrong outputs must be rejected before anything is believed."""
    if run.tester is None:
        found = arena.mutants()
        accepted = [f"{m.name} ({m.output})" for m in found if m.caught is False]
        run.emit("tester", sync=True, made=sum(m.caught is not None for m in found), accepted=accepted,
                 skipped=[f"{m.name} ({m.output})" for m in found if m.caught is None])  # fmt: skip
    assert run.tester is not None
    if accepted := run.tester["accepted"]:
        raise UsageError(f"the check is too weak for this task: it accepts {', '.join(accepted)}",
                         hint="a tighter tolerance, or inputs that are not so small: docs/check-and-tolerance.md")  # fmt: skip


# --- who is to be beaten -----------------------------------------------------------------------------------------------


def face_the_baseline(run: Run, arena: Arena, live: Live | None) -> None:
    """Find the fastest correct baseline, or take the one that was asked for."""
    if run.opponent is None:
        wanted = run.begin.get("baseline")
        ranked = _ranked(list(arena.measured_baselines()), run, wanted)
        for baseline in _verified(ranked, wanted, live):
            run.emit("baseline", name=baseline.name, kind=baseline.kind, status=str(baseline.status),
                     reason=baseline.reason, time_us=dict(baseline.time_us))  # fmt: skip
        first = next((b.name for b in ranked if b.name == wanted or (wanted is None and _right(run, b.name))), None)
        if first is None or not _right(run, first):
            asked = f"--baseline {wanted} is not correct" if wanted else "no baseline is correct on every workload"
            said = "; ".join(f"{b.name}: {b.reason or b.status}" for b in run.baselines if wanted in (None, b.name))
            raise UsageError(f"{asked}: {said or 'there is none'}", hint=f"tunesmith check {run.begin['task_folder']}")
        run.emit("opponent", sync=True, name=first)
    elif live is not None:
        last = live.verified(run.opponent)  # tolerances refer to its outputs, which no journal holds
        if last.status is not Status.OK:
            raise UsageError(f"the baseline {run.opponent.name} was right, and is {last.status} now: {last.reason}")
    assert run.opponent is not None
    arena.face(run.opponent, run.trials)


def _right(run: Run, name: str) -> bool:
    return any(b.name == name and b.status is Status.OK for b in run.baselines)


def _ranked(measured: Sequence[Baseline], run: Run, wanted: str | None) -> list[Baseline]:
    """The fastest by the task's score first, or the one that was asked for; those that failed last."""
    weights = run.weights

    def slowness(baseline: Baseline) -> float:
        if run.begin["score"] == "time":
            return sum(weights[w] * us for w, us in baseline.time_us.items())
        return sum(weights[w] * math.log(us) for w, us in baseline.time_us.items())

    right = [b for b in measured if b.status is Status.OK]
    return [*sorted(right, key=lambda b: (b.name != wanted, slowness(b))), *(b for b in measured if b not in right)]


def _verified(ranked: Sequence[Baseline], wanted: str | None, live: Live | None) -> Iterator[Baseline]:
    """Until one stands up to every distribution, or the wanted one does not; the rest is told as it was measured."""
    found = live is None
    for baseline in ranked:
        if baseline.status is Status.OK and not found and live is not None:
            last = live.verified(baseline)
            found = last.status is Status.OK or baseline.name == wanted
            if last.status is not Status.OK:
                live.evaluator.checker.forget_baseline()
                reason = f"{last.workload} ({last.distribution}): {last.reason}"
                baseline = Baseline(baseline.name, baseline.kind, last.status, reason, {})
        yield baseline


# --- searching ---------------------------------------------------------------------------------------------------------


def explore(run: Run, arena: Arena) -> None:
    """Stage 2: while there is budget, ask, try, tell."""
    budget = Budget.parse(run.begin["budget"])
    templates = run.begin["templates"]
    legal = sum(t["legal"] for t in templates) if all(t["exact"] for t in templates) else None
    patient = run.begin["strategy"] == "exhaustive"
    asker = Asker(run, arena)
    asker.remember()
    queue = arena.queue(lambda: incumbent(run))
    stop = ""

    def ask() -> Asked | None:
        nonlocal stop
        stop = stop or enough(run.trials, legal, list(run.weights), patient=patient)
        stop = stop or budget.over(seconds=run.tick(), asked=run.asked, device_s=run.device_s)
        return None if stop else asker.ask()

    try:
        for number, (template, config) in dict(run.in_flight).items():
            queue.put(number, template, config)
        queue.fill(ask)
        while (trial := queue.next()) is not None:
            asker.tell(trial)
            queue.fill(ask)
    finally:
        queue.close()
    run.emit("stop", sync=True, reason=stop or "every configuration was tried")


def incumbent(run: Run) -> Incumbent | None:
    """What the next trial is raced against."""
    best = run.best
    return Incumbent(best.score, dict(run.best_us)) if best is not None and best.score is not None else None


def strategy_of(run: Run) -> str:
    """The strategy's name; a file of the user's own was copied into the run's folder."""
    name: str = run.begin["strategy"]
    return str(run.folder / name) if run.folder and name.partition(":")[0].endswith(".py") else name


class Asker:
    """The strategies of a run's templates behind one ask and one tell, which the journal hears of first."""

    def __init__(self, run: Run, arena: Arena) -> None:
        self.run = run
        maker = find_strategy(strategy_of(run))
        seeds = np.random.SeedSequence(run.begin["seed"]).spawn(len(arena.spaces))
        self.strategies: dict[str, Strategy] = {
            name: self._own(maker, space, np.random.default_rng(seed))
            for (name, space), seed in zip(arena.spaces.items(), seeds, strict=True)
        }
        self.sharing = Sharing(list(arena.spaces))

    def remember(self) -> None:
        """Bring the strategies to where they were: ask and tell what the journal says was asked and told."""
        trials = iter(list(self.run.trials))
        for event in list(self.run.talk):
            if event["event"] == "trial":
                self._told(next(trials))
                continue
            name, config = event["template"], self._config(event["template"])
            self.sharing.asked(name, config is not None)
            if config != event["config"]:
                raise UsageError(
                    f"{self.run.name} cannot go on: its strategy asks for something else than it did",
                    hint=f"{self.run.begin['strategy']} or the template's space changed since; start a new run",
                )

    def ask(self) -> Asked | None:
        for name in self.sharing.order():
            config = self._config(name)
            number = self.run.asked + (config is not None)
            self.run.emit("ask", number=number, template=name, config=config)
            others_wait = self.sharing.asked(name, config is not None)
            if config is not None:
                return number, name, config
            if others_wait:
                return None
        return None

    def tell(self, trial: Trial) -> None:
        """What is told is what the journal holds: a strategy that is brought back hears nothing else."""
        self.run.emit("trial", **trial_fields(trial))
        self._told(self.run.trials[-1])

    def _told(self, trial: Trial) -> None:
        self._own(self.strategies[trial.template].tell, trial)
        self.sharing.told(trial)

    def _config(self, name: str) -> Config | None:
        config: Config | None = plain(self._own(self.strategies[name].ask))
        return config

    def _own(self, function: Any, *arguments: Any) -> Any:
        """Call a strategy, which may be the user's own code."""
        try:
            return function(*arguments)
        except TunesmithError:
            raise
        except Exception as error:
            raise UsageError(
                f"the strategy {self.run.begin['strategy']} failed: {type(error).__name__}: {error}"
            ) from error


# --- choosing and proving ----------------------------------------------------------------------------------------------


def choose_finalists(run: Run, arena: Live) -> None:
    """Measure near ties again, choose, and verify what is chosen until it stands."""
    listed = {n: run.trial(n) for n in finalists(run.trials)}
    entries = {n: (t.template, t.config) for n, t in listed.items()}
    width = len(arena.workloads)
    while entries and len(run.finals) < FINALS * width:
        process = len(run.finals) // width
        told = {workload for workload, _ in run.finals[process * width :]}
        found = arena.time_together(entries, seed=run.begin["check_seed"] + process)
        for workload, times in found.items():
            if workload not in told:
                run.emit(
                    "final",
                    sync=True,
                    workload=workload,
                    process=process,
                    **_final(run, workload, times, list(entries)),
                )
    defaults = {n: changed(t.config, arena.spaces[t.template].template.default) for n, t in listed.items()}
    while True:
        chosen = choose(
            logs(run.finals), run.weights, defaults, without=tuple(run.refused()), base_us=run.base_us,
            max_kernels=run.begin["max_kernels"], alone=run.begin["batch_invariant"],
        )  # fmt: skip
        if chosen != run.choice:
            run.emit("choose", sync=True, general=chosen.general, cells=dict(chosen.cells))
        if stands(run, arena, chosen):
            return


def _final(run: Run, workload: str, times: Mapping[int, float] | str, numbers: Sequence[int]) -> dict[str, Any]:
    """What one process said; where an arm took it down, the times that the search saw."""
    if not isinstance(times, str):
        return {"time_us": times}
    assert run.opponent is not None
    seen = {n: cell.timing.time_us for n in numbers if (cell := run.trial(n).cells.get(workload)) and cell.timing}
    return {"time_us": {BASELINE: run.opponent.time_us[workload], **seen}, "reason": times}


def stands(run: Run, arena: Live, chosen: Choice) -> bool:
    """Verify what is chosen wherever it is used, the held-out workloads included, up to the first that falls."""
    wanted = places(chosen, run.served())
    for number in dict.fromkeys(n for n, _ in wanted):
        trial = run.trial(number)
        entry = (trial.template, trial.config)
        for workload in (*(w for n, w in wanted if n == number), *arena.held_out(entry)):
            if (number, workload) in run.verified:
                continue
            checked = arena.verify(entry, workload)
            run.emit("verify", sync=True, trial=number, workload=workload, status=str(checked.status), reason=checked.reason,
                     distribution=checked.distribution, error=checked.error)  # fmt: skip
            if checked.status is not Status.OK:
                return False
    return True


def prove(run: Run, arena: Live) -> None:
    """Play the chosen off against the baseline, process after process."""
    if run.choice is None or run.choice.general is None:
        return
    where = places(run.choice, run.served())
    entries = {n: (run.trial(n).template, run.trial(n).config) for n, _ in where}
    while len(run.plays) < PLAYS:
        found: Mapping[Any, Any] = arena.play(entries, where, run.plays, seed=run.begin["check_seed"])
        cells = []
        for (number, workload), played in found.items():
            told = {"reason": played} if isinstance(played, str) else vars(played)
            cells.append({"trial": number, "workload": workload, **told})
        run.emit("play", sync=True, process=len(run.plays), cells=cells)
