"""A run: one campaign, as its journal tells it. Events go in, and what is known of the run comes out.

The same fold serves a run that goes on, one that is resumed and one that is only read, so that nothing is known of a
run that its journal does not hold. Knows no devices and no strategies.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith.choice import Choice
from tunesmith.errors import UsageError
from tunesmith.journal import FORMAT, NAME, Event, Journal, is_begun, plain, read_events, trial_from
from tunesmith.playoff import Played
from tunesmith.task import Task
from tunesmith.template import Config
from tunesmith.trial import Status, Trial

Listener = Callable[[Event], None]
Place = tuple[int, str]  # a trial's number and a workload


@dataclass(frozen=True)
class Baseline:
    """Something that could be the opponent, as it was measured."""

    name: str
    kind: str  # baseline, callable or recorded
    status: Status
    reason: str
    time_us: Mapping[str, float]


@dataclass
class Run:
    """What is known of a run. `emit` adds to it; only a run that is held by this process may."""

    folder: Path | None = None
    journal: Journal | None = None
    listeners: list[Listener] = field(default_factory=list)

    begin: Event = field(default_factory=dict)
    device: Event = field(default_factory=dict)  # what the device said of itself when the run was last opened
    tester: Event | None = None  # what became of wrong outputs, made before anything was tried
    baselines: list[Baseline] = field(default_factory=list)
    opponent: Baseline | None = None
    talk: list[Event] = field(default_factory=list)  # asks and trials in their order: what strategies were told
    trials: list[Trial] = field(default_factory=list)
    asked: int = 0
    best: Trial | None = None  # that the search itself saw; nothing is claimed by it
    best_us: dict[str, float] = field(default_factory=dict)  # per workload the shortest time that any trial had
    in_flight: dict[int, tuple[str, Config]] = field(default_factory=dict)
    device_s: float = 0.0  # of the search
    compile_s: float = 0.0
    stopped: str = ""  # why the search ended
    finals: list[tuple[str, dict[int, float]]] = field(default_factory=list)  # a workload in a process: times
    choice: Choice | None = None
    verified: dict[Place, Event] = field(default_factory=dict)
    plays: list[dict[Place, Played | str]] = field(default_factory=list)  # a process each
    ended: str = ""
    seconds: float = 0.0  # that were worked, interruptions left out
    _since: float = field(default_factory=time.monotonic)
    _before: float = 0.0

    # -- folders --

    @staticmethod
    def create(folder: Path, begin: Event) -> Run:
        """A new run in a folder that holds none yet."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be made: {error.strerror}", hint="--run DIR chooses a folder") from None
        if is_begun(folder):
            raise UsageError(f"{folder} holds a run already", hint=f"tunesmith resume {folder}, or another --run DIR")
        run = Run(folder, Journal(folder))
        run.emit("begin", format=FORMAT, **begin)
        return run

    @staticmethod
    def resume(folder: Path) -> Run:
        """A run to go on with, held by this process."""
        if not is_begun(folder):
            return Run.read(folder)  # says what is wrong, before anything is made
        journal = Journal(folder)  # held before it is read, so that nobody adds to it in between
        try:
            run = Run.read(folder)
        except UsageError:
            journal.close()
            raise
        run.journal = journal
        run._before, run._since = run.seconds, time.monotonic()
        return run

    @staticmethod
    def read(folder: Path) -> Run:
        """A run to look at."""
        run = Run(folder)
        for event in read_events(folder):
            run._take(event)
        if not run.begin:
            raise UsageError(f"{folder}: its journal is empty", hint="the run ended before it began; start it again")
        return run

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()

    # -- events --

    def emit(self, event: str, *, sync: bool = False, **fields: Any) -> None:
        """Something happened: it is written down, and known from now on."""
        line = {"event": event, "at": round(self.tick(), 3), **plain(fields)}
        if self.journal is not None:
            self.journal.write(line, sync=sync)
        self._take(line)
        for listener in self.listeners:
            listener(line)

    def tick(self) -> float:
        """The seconds worked so far."""
        self.seconds = self._before + time.monotonic() - self._since
        return self.seconds

    def _take(self, event: Event) -> None:
        self.seconds = event.get("at", self.seconds)
        handler = getattr(self, f"_on_{event['event'].replace('-', '_')}", None)
        if handler is None:
            raise UsageError(f"{self.folder}: an event {event['event']!r} that this version does not know")
        handler(event)

    def _on_begin(self, event: Event) -> None:
        if event.get("format") != FORMAT:
            raise UsageError(f"{self.folder}: a journal of format {event.get('format')}; this version reads {FORMAT}")
        self.begin = event

    def _on_open(self, event: Event) -> None:
        self.device = event["device"]

    def _on_tester(self, event: Event) -> None:
        self.tester = event

    def _on_baseline(self, event: Event) -> None:
        self.baselines = [
            b for b in self.baselines if b.name != event["name"]
        ]  # an interruption may have them told again
        self.baselines.append(
            Baseline(event["name"], event["kind"], Status(event["status"]), event.get("reason", ""), event["time_us"])
        )

    def _on_opponent(self, event: Event) -> None:
        self.opponent = next(b for b in self.baselines if b.name == event["name"])

    def _on_ask(self, event: Event) -> None:
        self.talk.append(event)
        if event["config"] is not None:
            self.asked = event["number"]
            self.in_flight[self.asked] = (event["template"], event["config"])

    def _on_trial(self, event: Event) -> None:
        trial = trial_from(event)
        self.talk.append(event)
        self.trials.append(trial)
        if trial.score is not None and (self.best is None or trial.score > (self.best.score or 0.0)):
            self.best = trial
        for name, cell in trial.cells.items():
            if cell.timing is not None and cell.status is Status.OK:
                self.best_us[name] = min(cell.timing.time_us, self.best_us.get(name, math.inf))
        self.in_flight.pop(trial.number, None)
        self.device_s += trial.seconds.get("device", 0.0)
        self.compile_s += trial.seconds.get("compile", 0.0)

    def _on_stop(self, event: Event) -> None:
        self.stopped = event["reason"]

    def _on_final(self, event: Event) -> None:
        self.finals.append((event["workload"], {int(n): us for n, us in event["time_us"].items()}))

    def _on_choose(self, event: Event) -> None:
        self.choice = Choice(event["general"], event["cells"])

    def _on_verify(self, event: Event) -> None:
        self.verified[event["trial"], event["workload"]] = event

    def _on_play(self, event: Event) -> None:
        self.plays.append({(c["trial"], c["workload"]): _played(c) for c in event["cells"]})

    def _on_end(self, event: Event) -> None:
        self.ended = event["reason"]

    # -- what is known --

    @property
    def name(self) -> str:
        return str(self.folder) if self.folder else "a run without a folder"

    @property
    def weights(self) -> dict[str, float]:
        return {w["name"]: w["weight"] for w in self.begin["workloads"]}

    @property
    def base_us(self) -> dict[str, float] | None:
        """The opponent's times, where scores are ratios of total time and so hang on them."""
        return dict(self.opponent.time_us) if self.opponent and self.begin["score"] == "time" else None

    def served(self) -> set[Place]:
        """Which finalist serves which workload: where it took part in a heat."""
        return {(number, workload) for workload, times in self.finals for number in times}

    def trial(self, number: int) -> Trial:
        for trial in self.trials:
            if trial.number == number:
                return trial
        raise UsageError(f"{self.name} has no trial {number}", hint=f"it has 1 to {self.asked}")

    def by_status(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for trial in self.trials:
            counts[str(trial.status)] = counts.get(str(trial.status), 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def records(self) -> list[dict[str, Any]]:
        """The trials as flat records, for a data frame or a CSV file: every record has the same keys."""
        parameters = dict.fromkeys(name for t in self.trials for name in t.config)
        workloads = list(self.weights)
        return [_record(trial, parameters, workloads) for trial in self.trials]

    def refused(self) -> dict[int, Event]:
        """Trials that did not stand up when they were verified."""
        return {n: event for (n, _), event in self.verified.items() if event["status"] != Status.OK}

    @property
    def state(self) -> str:
        """ "done", "searched" (what it chose is not proven yet) or "searching"."""
        return "done" if self.ended else "searched" if self.stopped else "searching"


def _record(trial: Trial, parameters: Iterable[str], workloads: Iterable[str]) -> dict[str, Any]:
    times = {name: cell.timing.time_us for name, cell in trial.cells.items() if cell.timing is not None}
    kernels = [kernel for kernels in trial.resources.values() for kernel in kernels]
    return {
        "trial": trial.number, "template": trial.template, "status": str(trial.status), "score": trial.score,
        "bound": trial.bound, "twin": trial.twin,
        **{f"config.{name}": trial.config.get(name) for name in parameters},
        **{f"time_us.{name}": times.get(name) for name in workloads},
        "registers": max((k.registers for k in kernels), default=None),
        "spill_bytes": max((k.spill_bytes for k in kernels), default=None),
        "compile_s": trial.seconds.get("compile"), "device_s": trial.seconds.get("device"), "reason": trial.reason,
    }  # fmt: skip


def _played(cell: Mapping[str, Any]) -> Played | str:
    if "reason" in cell:
        return str(cell["reason"])
    return Played(cell["baseline_us"], cell["challenger_us"], cell["ratio"])


def copied_task(task: Task, run: Path) -> Path:
    """The task's folder as it was, inside the run's: a run folder can travel."""
    assert task.folder is not None
    target, own = run / "task", run.resolve()
    shutil.rmtree(target, ignore_errors=True)

    def ignored(folder: str, names: list[str]) -> set[str]:
        apart = {
            n for n in names if n in ("__pycache__", "cassettes", "runs") or n.startswith(".") or n.endswith(".pyc")
        }
        return apart | {n for n in names if (Path(folder) / n).resolve() == own}

    shutil.copytree(task.folder, target, ignore=ignored)
    return target


def run_folders(parent: Path) -> Sequence[Path]:
    """The runs in a folder, the latest last."""
    return sorted((p.parent for p in parent.glob(f"*/{NAME}")), key=lambda p: (p / NAME).stat().st_mtime)


def new_folder(parent: Path, task: str) -> Path:
    """`runs/TASK-DATE-N`, the first that is free."""
    day = time.strftime("%Y%m%d")
    number = 1
    while (folder := parent / f"{task}-{day}-{number}").exists():
        number += 1
    return folder
