"""One configuration through the gates: legal ▸ safe ▸ built ▸ fits ▸ new ▸ correct ▸ timed. Gives a `Trial`, never raises for it.

In two halves, so that compilers and the device work side by side: `prepare` says which programs a configuration needs,
`finish` takes their builds to the device. What is measured here ranks candidates; claims are made by a play-off.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tunesmith.backends import null, nvrtc
from tunesmith.binding import Binding
from tunesmith.build import BUILT, Build, Program
from tunesmith.calibrate import Calibration
from tunesmith.checker import NO_TIME, Checked, Checker
from tunesmith.compiling import Compilers
from tunesmith.device import Device
from tunesmith.dtype import dtype
from tunesmith.errors import TaskError
from tunesmith.expression import Undefined
from tunesmith.gates import first_reason, program_of
from tunesmith.limits import occupancy
from tunesmith.messages import Candidate, Host, RunTime
from tunesmith.target import peak_us, target_us
from tunesmith.task import Setting, Task, Workload
from tunesmith.template import Config
from tunesmith.timing import timing
from tunesmith.trial import Cell, Incumbent, Status, Timing, Trial, score

CONTENTS = (0, 1, 2)  # different data in the buffer sets of a timing
SAMPLES = {"gpu": 25, "cpu": 10}
SETTLED = 0.01  # an interval this narrow needs no more samples
BEHIND = 1.25  # a trial this much slower than the incumbent is stopped


@dataclass(frozen=True)
class Prepared:
    """A configuration that may be built: one program per setting of its workloads."""

    number: int
    binding: Binding
    config: Config
    workloads: tuple[Workload, ...]
    programs: Mapping[Setting, Program]
    refused: Mapping[str, str] = field(default_factory=dict)  # workload: why it is not legal there


class Evaluator:
    """Takes configurations of one task through the gates on one device."""

    def __init__(self, task: Task, device: Device, compilers: Compilers, *, seed: int | None = None,
                 calibration: Calibration | None = None) -> None:  # fmt: skip
        self.task, self.device, self.compilers, self.calibration = task, device, compilers, calibration
        self.checker = Checker(task, device, seed)
        self.limits = device.limits
        self.version = nvrtc.version(task.cuda.compiler) if device.language == "cuda" else self.limits.arch
        self.baseline_us: dict[str, float] = {}
        self.seen: dict[str, Trial] = {}  # by identity
        self._lots = random.SystemRandom()

    def workloads(self, *, held_out: bool = False) -> tuple[Workload, ...]:
        """The task's workloads that this device can serve: meant for its kind, and of types that its language has."""
        listed = self.task.held_out if held_out else self.task.workloads
        language = self.device.language
        return tuple(
            w
            for w in listed
            if w.on in (None, self.device.kind) and all(dtype(t).spellings(language) for t in w.types.values())
        )

    def must_serve(self) -> None:
        """Raise where none of the task's workloads is for this device."""
        if not self.workloads():
            here = f"{self.device.name} (a {self.device.kind}; {self.device.language})"
            raise TaskError(
                f"no workload of {self.task.name} is for {here}",
                hint=f"give it one whose types {self.device.language} has, without on= or with on={self.device.kind!r}",
            )

    # -- the two halves --

    def prepare(self, number: int, binding: Binding, config: Config, workloads: Sequence[Workload]) -> Prepared | Trial:
        """The programs that this configuration needs; a `Trial` where it is illegal on every workload."""
        config = binding.fold(config, self.task.settings([w for w in workloads if not binding.misfit(w)]))
        refused, legal = {}, []
        for workload in workloads:
            reason = binding.why_illegal(config, workload, self.limits)
            if reason is None:
                legal.append(workload)
            else:
                refused[workload.name] = reason
        if not legal:
            reason = next(iter(refused.values()), "no workload is served by this device")
            return Trial(number, binding.template.name, config, Status.ILLEGAL, reason)
        try:
            settings = self.task.settings(legal)
            programs = {s: program_of(binding, self.task, config, s, self.limits) for s in settings}
        except Undefined as error:
            return Trial(number, binding.template.name, config, Status.ILLEGAL, str(error))
        return Prepared(number, binding, config, tuple(legal), programs, refused)

    def submit(self, prepared: Prepared) -> dict[Setting, str]:
        """Queue the programs; gives the keys of their builds."""
        native = self.device.kind == "cpu"
        return {
            setting: self.compilers.submit(program, self.version, index=self.device.index, native=native)
            for setting, program in prepared.programs.items()
        }

    def finish(self, prepared: Prepared, builds: Mapping[Setting, Build], *, incumbent: Incumbent | None = None,
               timed: bool = True) -> Trial:  # fmt: skip
        """Take the builds to the device: what fits is checked, what is right is timed."""
        trial = Trial(prepared.number, prepared.binding.template.name, prepared.config, Status.OK)
        trial = replace(trial, resources={setting: build.kernels for setting, build in builds.items()})
        for build in builds.values():
            if build.status != BUILT:
                return replace(trial, status=Status(build.status), reason=build.reason, log=build.log)
        candidates = self.candidates(prepared, builds)
        if isinstance(candidates, Cell):
            return replace(trial, status=candidates.status, reason=candidates.reason)
        trial = replace(trial, identity=self._identity(candidates))
        if trial.identity in self.seen:
            return self._duplicate(trial, self.seen[trial.identity])
        trial = self._measure(trial, prepared, candidates, incumbent, timed)
        self.seen[trial.identity] = trial
        return trial

    def evaluate(self, number: int, binding: Binding, config: Config, workloads: Sequence[Workload], *,
                 timed: bool = True) -> Trial:  # fmt: skip
        """Both halves, one configuration at a time."""
        prepared = self.prepare(number, binding, config, workloads)
        if isinstance(prepared, Trial):
            return prepared
        started = time.monotonic()
        builds = self.builds(prepared)
        trial = self.finish(prepared, builds, timed=timed)
        return replace(
            trial, seconds={**trial.seconds, "build": time.monotonic() - started - sum(trial.seconds.values())}
        )

    def builds(self, prepared: Prepared) -> dict[Setting, Build]:
        """Build everything that a configuration needs, and wait."""
        native = self.device.kind == "cpu"
        programs = [(program, self.version) for program in prepared.programs.values()]
        return dict(
            zip(
                prepared.programs,
                self.compilers.build_all(programs, index=self.device.index, native=native),
                strict=True,
            )
        )

    # -- the gates on the device --

    def candidates(self, prepared: Prepared, builds: Mapping[Setting, Build]) -> dict[str, Candidate] | Cell:
        """Per workload what would be launched; a `Cell` with the reason where arguments or limits say no."""
        found = {}
        for workload in prepared.workloads:
            build = builds[self.task.setting(workload)]
            try:
                launches = prepared.binding.launches(prepared.config, workload, self.limits)
                workspaces = prepared.binding.workspaces(prepared.config, workload, self.limits)
            except Undefined as error:
                return Cell(workload.name, Status.ILLEGAL, str(error))
            problem = first_reason(launches, build.kernels, self.limits)
            if problem is not None:
                reason, mismatch = problem
                return Cell(
                    workload.name, Status.BUILD_FAILED if mismatch else Status.OVER_LIMITS, f"{workload.name}: {reason}"
                )
            found[workload.name] = Candidate(build, launches, workspaces)
        return found

    def _measure(self, trial: Trial, prepared: Prepared, candidates: Mapping[str, Candidate], incumbent: Incumbent | None,
                 timed: bool) -> Trial:  # fmt: skip
        if not self.device.runs:
            return self._not_run(trial, prepared, candidates, timed)
        started = time.monotonic()
        chosen = self.representative(prepared.workloads)
        screened = self.checker.run(candidates[chosen.name], chosen)
        checked = time.monotonic() - started
        if screened.status is not Status.OK:
            reason = f"{chosen.name}: {screened.reason}"
            return replace(
                trial, status=screened.status, reason=reason, log=screened.log or trial.log, seconds={"check": checked}
            )
        cells: dict[str, Cell] = {}
        for workload in sorted(prepared.workloads, key=lambda w: -w.weight) if timed else ():
            bound = self._behind_us(workload, cells, prepared, incumbent) if incumbent else None
            cell = self.time(candidates[workload.name], workload, behind_us=bound)
            cells[workload.name] = cell = replace(cell, occupancy=self._occupancy(candidates[workload.name]))
            if cell.status is not Status.OK:
                break
        seconds = {"check": checked, "time": time.monotonic() - started - checked}
        return self.scored(replace(trial, cells=cells, seconds=seconds), prepared.refused, incumbent)

    def _behind_us(
        self, workload: Workload, cells: Mapping[str, Cell], prepared: Prepared, incumbent: Incumbent
    ) -> float | None:
        times = _times(cells) | {name: self.baseline_us[name] for name in prepared.refused if name in self.baseline_us}
        return incumbent.behind_us(workload.name, times, self.baseline_us, self._weights, self.task.score, BEHIND)

    def time(self, candidate: Candidate | Host, workload: Workload, *, behind_us: float | None = None) -> Cell:
        """Time one candidate on one workload, cold, over rotating buffers; its outputs are judged afterwards."""
        if not self.device.runs:
            return self._invented(candidate, workload)
        case = self.checker.case(workload, exact_alignment=False, contents=CONTENTS)
        if not self.device.has(case.key):
            self.device.load(case)
        rows = self.checker.oracle.rows(workload)
        message = RunTime(
            case.key,
            (candidate,),
            (0,) * SAMPLES[self.device.kind],
            behind_us=behind_us,
            settled=SETTLED,
            deterministic=self.task.deterministic,
            give_back=self._lots.randrange(1 << 16),
            rows=None if rows is None else tuple(map(int, rows)),
            row_axes=None if rows is None else self.checker.row_axes(),
        )
        answer = self.checker.ask(message)
        if isinstance(answer, Checked):
            return Cell(workload.name, answer.status, answer.reason)
        if reason := self.checker.timed_reason(answer, workload, CONTENTS):
            impossible = reason.startswith(NO_TIME)
            return Cell(workload.name, Status.IMPOSSIBLE if impossible else Status.WRONG, reason)
        samples = answer.fields["samples_us"][0]
        found = timing(samples, minimum=self.device.kind == "cpu")
        if behind_us is not None and found.low_us > behind_us:
            return Cell(workload.name, Status.BEHIND, f"{found.time_us:.2f} µs, more than {behind_us:.2f}", found)
        return self._beside_the_lines(Cell(workload.name, timing=found), workload, answer.fields["launches"][0])

    def _beside_the_lines(self, cell: Cell, workload: Workload, launches: int) -> Cell:
        """The cell with its share of the target; or, faster than memory can be, as impossible."""
        assert cell.timing is not None
        us, kept = cell.timing.time_us, self.limits.l2_bytes / launches
        floor = peak_us(self.task, workload, self.device.facts.get("peak_bytes_per_s"), kept_bytes=kept)
        if floor is not None and us < floor:
            reason = f"{us:.2f} µs; the memory's peak rate allows no less than {floor:.2f} for the bytes that must move"
            return replace(cell, status=Status.IMPOSSIBLE, reason=reason)
        target = target_us(self.task, workload, self.calibration) if self.calibration else None
        return replace(cell, target_fraction=target / us if target else None)

    def _not_run(self, trial: Trial, prepared: Prepared, candidates: Mapping[str, Candidate], timed: bool) -> Trial:
        """The trial on a device that runs nothing: it passed the gates, and its cells, if any, say that they are invented."""
        if not (self.device.invents and timed):
            return replace(trial, reason=null.NOT_RUN)
        cells = {w.name: self.time(candidates[w.name], w) for w in prepared.workloads}
        return self.scored(replace(trial, reason=null.INVENTED, cells=cells), prepared.refused)

    def _invented(self, candidate: Candidate | Host, workload: Workload) -> Cell:
        if isinstance(candidate, Host) or not self.device.invents:
            return Cell(workload.name, reason=null.NOT_RUN)
        us = null.invented_us(candidate.build, candidate.launches, self.limits)
        occupancy = self._occupancy(candidate)
        return Cell(workload.name, reason=null.INVENTED, timing=Timing(us, us, us, (us,)), occupancy=occupancy)

    def scored(self, trial: Trial, refused: Iterable[str] = (), incumbent: Incumbent | None = None) -> Trial:
        """The trial with its status and score from its cells. Where it was refused the baseline serves, and counts as it is."""
        failed = next((cell for cell in trial.cells.values() if cell.status is not Status.OK), None)
        times = _times(trial.cells) | {name: self.baseline_us[name] for name in refused if name in self.baseline_us}
        if failed is not None:
            bound = None
            if failed.status is Status.BEHIND and failed.timing is not None and incumbent is not None:
                times[failed.workload] = failed.timing.low_us
                bound = incumbent.at_most(times, self.baseline_us, self._weights, self.task.score)
            return replace(trial, status=failed.status, reason=failed.reason, bound=bound)
        if not trial.cells or set(times) != set(self.baseline_us):
            return trial
        return replace(trial, score=score(times, self.baseline_us, self._weights, self.task.score))

    @property
    def _weights(self) -> dict[str, float]:
        return {w.name: w.weight for w in self.task.workloads}

    def representative(self, workloads: Sequence[Workload]) -> Workload:
        """The workload that screens: the one with the most output that is not large."""
        sizes = {w.name: sum(_product(a.shape(w.dims)) for a in self.task.outputs) for w in workloads}
        small = [w for w in workloads if sizes[w.name] <= 2**21]
        return max(small, key=lambda w: sizes[w.name]) if small else min(workloads, key=lambda w: sizes[w.name])

    def _occupancy(self, candidate: Candidate) -> float:
        launch = candidate.launches[0] if candidate.launches else None
        if launch is None:
            return 0.0
        kernel = candidate.build.kernel(launch.entry)
        return occupancy(
            self.limits, launch.threads, kernel.registers, launch.shared_bytes + kernel.shared_bytes
        ).fraction

    @staticmethod
    def _identity(candidates: Mapping[str, Candidate]) -> str:
        """Equal for two configurations that are the same machine code with the same launches everywhere."""
        launched = [
            (name, c.build.fingerprint or c.build.key, c.launches, c.workspaces)
            for name, c in sorted(candidates.items())
        ]
        return hashlib.sha256(repr(launched).encode()).hexdigest()[:32]

    @staticmethod
    def _duplicate(trial: Trial, twin: Trial) -> Trial:
        return replace(
            trial, status=Status.DUPLICATE, twin=twin.number, cells=twin.cells, score=twin.score, bound=twin.bound,
            reason=f"the same machine code and launches as trial {twin.number} ({twin.status})",
        )  # fmt: skip


def _times(cells: Mapping[str, Cell]) -> dict[str, float]:
    return {name: cell.timing.time_us for name, cell in cells.items() if cell.timing and cell.status is Status.OK}


def _product(shape: Sequence[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total
