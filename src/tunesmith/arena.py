"""Where a run's configurations are tried: a device with its compilers, or recordings that answer in their place.

Either has spaces by template name and a queue of configurations under way; a device can also measure baselines and
finalists again, verify, and play off. Knows nothing of strategies, budgets or journals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tunesmith import finals
from tunesmith.backends import host
from tunesmith.binding import Binding
from tunesmith.checker import Checked
from tunesmith.device import Device, describe
from tunesmith.errors import UsageError
from tunesmith.evaluate import Evaluator, Prepared
from tunesmith.messages import Candidate, Host
from tunesmith.mutants import Mutant, mutants
from tunesmith.pipeline import Pipeline
from tunesmith.playoff import Found, Pairing, play_once
from tunesmith.recorded import Recording
from tunesmith.run import Baseline, Place
from tunesmith.space import Space
from tunesmith.task import Task, Workload
from tunesmith.template import Config, Template
from tunesmith.trial import Cell, Incumbent, Status, Trial

Asked = tuple[int, str, Config]  # a number, a template's name, a configuration
Entry = tuple[str, Config]


class Queue(Protocol):
    """Configurations in, trials out."""

    def fill(self, ask: Callable[[], Asked | None]) -> None: ...
    def put(self, number: int, template: str, config: Config) -> None: ...
    def next(self) -> Trial | None: ...
    def close(self) -> None: ...


class Arena(Protocol):
    """What a search needs of where it happens."""

    @property
    def proves(self) -> bool: ...  # whether finalists can be measured again, verified and played off here
    @property
    def spaces(self) -> Mapping[str, Space]: ...
    @property
    def workloads(self) -> Sequence[Workload]: ...
    def describe(self) -> dict[str, Any]: ...
    def measured_baselines(self) -> Iterator[Baseline]: ...
    def face(self, opponent: Baseline, seen: Sequence[Trial]) -> None: ...
    def queue(self, incumbent: Callable[[], Incumbent | None]) -> Queue: ...


# --- recordings --------------------------------------------------------------------------------------------------------


@dataclass
class Recorded:
    """Recorded answers, at once; so many are under way as a device would have."""

    recording: Recording
    depth: int = 4
    proves: bool = field(default=False, init=False)

    @property
    def spaces(self) -> Mapping[str, Space]:
        return {self.recording.name: self.recording.space}

    @property
    def workloads(self) -> Sequence[Workload]:
        return self.recording.workloads

    def describe(self) -> dict[str, Any]:
        return {"id": "recorded", "name": self.recording.device}

    def measured_baselines(self) -> Iterator[Baseline]:
        name = "the recorded default" if self.recording.default else "the median of what succeeded"
        yield Baseline(name, "recorded", Status.OK, "", self.recording.baseline_us)

    def face(self, opponent: Baseline, seen: Sequence[Trial]) -> None:
        pass

    def queue(self, incumbent: Callable[[], Incumbent | None]) -> Queue:
        return _Answers(self.recording, self.depth)


class _Answers:
    def __init__(self, recording: Recording, depth: int) -> None:
        self.recording, self.depth = recording, depth
        self._under_way: deque[tuple[int, Config]] = deque()

    def fill(self, ask: Callable[[], Asked | None]) -> None:
        while len(self._under_way) < self.depth and (asked := ask()) is not None:
            self.put(*asked)

    def put(self, number: int, template: str, config: Config) -> None:
        self._under_way.append((number, config))

    def next(self) -> Trial | None:
        if not self._under_way:
            return None
        number, config = self._under_way.popleft()
        trial = self.recording.evaluate(config, number)
        stages = trial.seconds
        device = stages.get("check", 0.0) + stages.get("time", 0.0)
        return replace(trial, seconds={**stages, "compile": stages.get("build", 0.0), "device": device})

    def close(self) -> None:
        pass


# --- a device ----------------------------------------------------------------------------------------------------------


@dataclass
class Live:
    """A device, the compilers that feed it, and the templates that take part."""

    task: Task
    evaluator: Evaluator
    bindings: Mapping[str, Binding]
    spaces: Mapping[str, Space]
    opponent: Baseline | None = field(default=None, init=False)
    _arms: dict[str, dict[str, Candidate | Host]] = field(default_factory=dict, init=False)  # of baselines
    _candidates: dict[str, dict[str, Candidate]] = field(default_factory=dict, init=False)

    @staticmethod
    def of(evaluator: Evaluator, templates: Sequence[Template]) -> Live:
        """The templates bound and counted; one that is of no use here is an error."""
        task, device = evaluator.task, evaluator.device
        bindings: dict[str, Binding] = {}
        spaces: dict[str, Space] = {}
        for template in templates:
            binding = Binding(template, task)
            served = [w for w in evaluator.workloads() if not binding.misfit(w)]
            if not served:
                raise UsageError(f"{template.name} serves none of the workloads of {task.name} on {device.name}",
                                 hint="its [fixed] dims and the workloads' differ")  # fmt: skip
            space = Space(template, task, settings=task.settings(served), limits=device.limits)
            if space.count().exact and not space.count().value:
                raise UsageError(
                    f"{template.name} has no configuration that is legal in all of {'; '.join(map(str, space.settings))}",
                    hint="tunesmith space TEMPLATE --task TASK says what each constraint removes",
                )
            if task.batch_invariant and space.predicates:
                said = "; ".join(space.predicates)
                raise UsageError(
                    f"{template.name} may not be chosen for every size ({said}), and {task.name} is batch_invariant",
                    hint="one kernel has to serve all of them: a constraint may name parameters and static dims only",
                )
            bindings[template.name], spaces[template.name] = binding, space
        return Live(task, evaluator, bindings, spaces)

    @property
    def device(self) -> Device:
        return self.evaluator.device

    @property
    def proves(self) -> bool:
        return self.device.runs

    @property
    def workloads(self) -> Sequence[Workload]:
        return self.evaluator.workloads()

    def describe(self) -> dict[str, Any]:
        return describe(self.device)

    def mutants(self) -> list[Mutant]:
        """Wrong outputs, and whether the check caught them."""
        return mutants(self.evaluator.checker, self.evaluator.representative(self.workloads))

    # -- baselines --

    def measured_baselines(self) -> Iterator[Baseline]:
        """Every baseline of the task that can run here, screened and timed."""
        for path in self.task.files("baselines", self.device.language):
            yield self._measured_file(Template.load(path))
        for name, declared in self.task.baselines.items() if self.task.folder else ():
            if library := host.lacks(declared, gpu=self.device.kind == "gpu"):
                yield Baseline(name, "callable", Status.ILLEGAL, f"not here: {library} is not installed", {})
            else:
                yield self._measured_callable(name)

    def _measured_file(self, template: Template) -> Baseline:
        binding = Binding(template, self.task)
        self.evaluator.seen.clear()
        trial = self.evaluator.evaluate(0, binding, template.default, self.workloads)
        self.evaluator.seen.clear()
        missing = [w.name for w in self.workloads if w.name not in trial.cells]
        status, reason = trial.status, trial.reason
        if status is Status.OK and missing and (self.device.runs or self.device.invents):
            status, reason = Status.ILLEGAL, f"it does not serve {', '.join(missing)}"
        return Baseline(template.name, "baseline", status, reason, _times(trial.cells))

    def _measured_callable(self, name: str) -> Baseline:
        arms = self._callable_arms(name, self.workloads)
        cells: dict[str, Cell] = {}
        for workload in self.workloads:
            checked = self.evaluator.checker.run(arms[workload.name], workload)
            if checked.status is not Status.OK:
                return Baseline(name, "callable", checked.status, f"{workload.name}: {checked.reason}", {})
            cells[workload.name] = cell = self.evaluator.time(arms[workload.name], workload)
            if cell.status is not Status.OK:
                return Baseline(name, "callable", cell.status, f"{workload.name}: {cell.reason}", {})
        return Baseline(name, "callable", Status.OK, "", _times(cells))

    def verified(self, baseline: Baseline) -> Checked:
        """A baseline on every workload and distribution, the first that fails or the last; what tolerances refer to is kept."""
        arms = self._baseline_arms(baseline, held_out=True)
        for workload in (*self.workloads, *self.evaluator.workloads(held_out=True)):
            if workload.name in arms:
                checked = self.evaluator.checker.verify(arms[workload.name], workload, adopt=True)
                if checked.status is not Status.OK:
                    return checked
        return checked

    def face(self, opponent: Baseline, seen: Sequence[Trial]) -> None:
        """From now on scores refer to this baseline; what was measured before, in this run, is not measured again."""
        self.opponent = opponent
        self.evaluator.baseline_us = dict(opponent.time_us)
        self.evaluator.seen = {t.identity: t for t in seen if t.identity and t.status is not Status.DUPLICATE}

    # -- the search --

    def queue(self, incumbent: Callable[[], Incumbent | None]) -> Queue:
        return _Named(Pipeline(self.evaluator, self.workloads, incumbent=incumbent), self.bindings)

    # -- what is left to say --

    def arms(self, template: str, config: Config, *, held_out: bool = False) -> dict[str, Candidate]:
        """A configuration's candidate per workload that it serves."""
        binding = self.bindings[template]
        key = f"{template} {held_out} {sorted(config.items())}"
        if key not in self._candidates:
            workloads = [*self.workloads, *(self.evaluator.workloads(held_out=True) if held_out else ())]
            prepared = self.evaluator.prepare(0, binding, config, workloads)
            self._candidates[key] = {} if isinstance(prepared, Trial) else self._launchable(prepared)
        return self._candidates[key]

    def _launchable(self, prepared: Prepared) -> dict[str, Candidate]:
        """Per workload; one that does not launch is not served, and says nothing of the others."""
        builds = self.evaluator.builds(prepared)
        each = [self.evaluator.candidates(replace(prepared, workloads=(w,)), builds) for w in prepared.workloads]
        return {name: candidate for found in each if not isinstance(found, Cell) for name, candidate in found.items()}

    def time_together(self, entries: Mapping[int, Entry], *, seed: int) -> dict[str, dict[int, float] | str]:
        """Finalists and baseline in turn on the same buffers, in one fresh process."""
        assert self.opponent is not None
        arms = {number: self.arms(*entry) for number, entry in entries.items()}
        base = self._baseline_arms(self.opponent)
        cells = []
        for workload in self.workloads:
            served = {number: found[workload.name] for number, found in arms.items() if workload.name in found}
            cells.append((workload, {0: base[workload.name], **served}))
        return finals.time_together(self.evaluator.checker, cells, seed=seed)

    def verify(self, entry: Entry, workload: str) -> Checked:
        """One configuration on one workload, with every distribution."""
        listed = {w.name: w for w in (*self.workloads, *self.evaluator.workloads(held_out=True))}
        arms = self.arms(*entry, held_out=True)
        if workload not in arms:
            return Checked(workload, "", Status.ILLEGAL, "not served")
        return self.evaluator.checker.verify(arms[workload], listed[workload], lambda other: self._arm_at(entry, other))

    def _arm_at(self, entry: Entry, workload: Workload) -> Candidate | None:
        """The same configuration on a workload that the task does not list; None where it does not serve it."""
        prepared = self.evaluator.prepare(0, self.bindings[entry[0]], entry[1], [workload])
        return None if isinstance(prepared, Trial) else self._launchable(prepared).get(workload.name)

    def held_out(self, entry: Entry) -> list[str]:
        """The workloads that were kept from tuning and that this configuration serves."""
        served = self.arms(*entry, held_out=True)
        return [w.name for w in self.evaluator.workloads(held_out=True) if w.name in served]

    def play(
        self, entries: Mapping[int, Entry], places: Sequence[Place], before: Sequence[Found], *, seed: int
    ) -> Found:
        """One process more of the play-off against the baseline."""
        assert self.opponent is not None
        listed = {w.name: w for w in self.workloads}
        base = self._baseline_arms(self.opponent)
        arms = {number: self.arms(*entry) for number, entry in entries.items()}
        pairings = [Pairing(listed[w], base[w], arms[number][w], (number, w)) for number, w in places]
        return play_once(self.evaluator.checker, pairings, before, seed=seed)

    def _baseline_arms(self, baseline: Baseline, *, held_out: bool = False) -> dict[str, Candidate | Host]:
        key = f"{baseline.name} {held_out}"
        if key not in self._arms:
            workloads = [*self.workloads, *(self.evaluator.workloads(held_out=True) if held_out else ())]
            arms = self._callable_arms if baseline.kind == "callable" else self._file_arms
            self._arms[key] = arms(baseline.name, workloads)
        return self._arms[key]

    def _callable_arms(self, name: str, workloads: Sequence[Workload]) -> dict[str, Candidate | Host]:
        return {w.name: Host(str(self.task.folder), name, dict(w.dims)) for w in workloads}

    def _file_arms(self, name: str, workloads: Sequence[Workload]) -> dict[str, Candidate | Host]:
        path = next(p for p in self.task.files("baselines", self.device.language) if p.stem == name)
        binding = Binding(Template.load(path), self.task)
        prepared = self.evaluator.prepare(0, binding, binding.template.default, workloads)
        return {} if isinstance(prepared, Trial) else dict(self._launchable(prepared))


class _Named:
    """A pipeline that is given templates by name."""

    def __init__(self, pipeline: Pipeline, bindings: Mapping[str, Binding]) -> None:
        self.pipeline, self.bindings = pipeline, bindings

    def fill(self, ask: Callable[[], Asked | None]) -> None:
        def bound() -> tuple[int, Binding, Config] | None:
            asked = ask()
            return None if asked is None else (asked[0], self.bindings[asked[1]], asked[2])

        self.pipeline.fill(bound)

    def put(self, number: int, template: str, config: Config) -> None:
        self.pipeline.put(number, self.bindings[template], config)

    def next(self) -> Trial | None:
        return self.pipeline.next()

    def close(self) -> None:
        self.pipeline.close()


def _times(cells: Mapping[str, Cell]) -> dict[str, float]:
    return {name: cell.timing.time_us for name, cell in cells.items() if cell.timing is not None}
