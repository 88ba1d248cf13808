"""`check`: one configuration of each file, verified on every workload incl. held-out, timed, set beside target and baseline.

The tester is tested first. What comes out is data (`Report`); the command line makes a table of it, or JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tunesmith.backends import host
from tunesmith.binding import Binding
from tunesmith.calibrate import load
from tunesmith.checker import At, Checked
from tunesmith.compiling import Compilers
from tunesmith.device import Device, find_device
from tunesmith.errors import UsageError, VerdictError
from tunesmith.evaluate import Evaluator, Prepared
from tunesmith.messages import Candidate, Host
from tunesmith.mutants import Mutant, mutants
from tunesmith.task import Task, Workload
from tunesmith.template import Config, Template
from tunesmith.trial import Cell, Status, Trial

Progress = Callable[[str], None]


@dataclass(frozen=True)
class FileReport:
    """One kernel file, or one callable baseline: its verdict per workload, and what the binary says."""

    name: str
    kind: str  # "baseline", "callable" or "template"
    config: Mapping[str, int | str]
    status: Status | None  # None: not run, for it needs something that is not here; no verdict
    reason: str
    log: str = ""
    checks: tuple[Checked, ...] = ()
    cells: Mapping[str, Cell] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)  # workload: why it is not served
    kernels: tuple[dict[str, Any], ...] = ()

    @property
    def right(self) -> bool:
        return self.status is Status.OK


@dataclass(frozen=True)
class Report:
    """What `check` found: the self-test of the tester, and a report per file."""

    mutants: tuple[Mutant, ...]
    files: tuple[FileReport, ...]

    @property
    def weak(self) -> tuple[Mutant, ...]:
        """Wrong outputs that the check lets through: it is too weak for this task."""
        return tuple(m for m in self.mutants if m.caught is False)

    @property
    def right(self) -> bool:
        return not self.weak and all(file.right for file in self.files if file.status is not None)

    def raise_for_status(self) -> Report:
        """Raise a `VerdictError` for the first thing that is not right, else give the report itself."""
        if self.weak:
            passed = ", ".join(f"{m.name} ({m.output})" for m in self.weak)
            raise VerdictError(
                f"the check is too weak for this task: it accepts {passed}", hint="see docs/check-and-tolerance.md"
            )
        for file in self.files:
            if file.status is not None and not file.right:
                raise VerdictError(f"{file.name} ({file.kind}) is {file.status}: {file.reason}")
        return self


def check(task: Task, *templates: Template, device: Device | str | None = None, config: Config | None = None,
          callables: bool = True, timed: bool = True, seed: int | None = None,
          progress: Progress = lambda _: None) -> Report:  # fmt: skip
    """Verify templates (the task's own where none are given), and the task's baselines, on one device and every workload.

    `device` is one, or a name such as "opencl:0"; without it the best that is found. `config` stands for the defaults.
    """
    held = device if isinstance(device, Device) else find_device(device)
    try:
        if not held.runs:
            raise UsageError(
                f"{held.name} cannot run a kernel", hint="check needs a device; tunesmith space needs none"
            )
        with Compilers(environment=held.environment) as compilers:
            evaluator = Evaluator(task, held, compilers, seed=seed, calibration=load(held))
            evaluator.must_serve()
            files = task_files(task, held.language, templates, config)
            if config is not None and not any(kind == "template" for kind, _ in files):
                raise UsageError(f"--config is for templates; the task {task.name} has none in {held.language}")
            return check_task(evaluator, files, config=config, callables=callables, timed=timed, progress=progress)
    finally:
        if held is not device:
            held.close()


def check_task(evaluator: Evaluator, files: Sequence[tuple[str, Template]], *, config: Config | None = None,
               callables: bool = True, timed: bool = True, progress: Progress = lambda _: None) -> Report:  # fmt: skip
    """Check files (kind and template), and the task's callable baselines, on every workload that this device serves."""
    task = evaluator.task
    progress("testing the tester")
    found = _mutants(evaluator)
    reports = []
    for kind, template in files:
        progress(f"{template.name}: building")
        chosen = config if kind == "template" else None
        adopting = not evaluator.checker.baseline_outputs
        reports.append(check_file(evaluator, kind, template, chosen, timed=timed, progress=progress))
        if kind == "baseline" and adopting and not reports[-1].right:
            evaluator.checker.forget_baseline()
    for name in task.baselines if callables and task.folder else ():
        progress(f"{name}: running")
        reports.append(check_callable(evaluator, name, timed=timed, progress=progress))
    return Report(tuple(found), tuple(reports))


def check_file(evaluator: Evaluator, kind: str, template: Template, config: Config | None, *, timed: bool,
               progress: Progress = lambda _: None) -> FileReport:  # fmt: skip
    """One file at one configuration (its default)."""
    task = evaluator.task
    binding = Binding(template, task)
    wanted = template.complete(config or {})
    everything = _everything(evaluator)
    prepared = evaluator.prepare(0, binding, wanted, everything)
    if isinstance(prepared, Trial):
        return FileReport(template.name, kind, wanted, prepared.status, prepared.reason)
    builds = evaluator.builds(prepared)
    evaluator.seen.clear()  # a file that is the same as another is looked at like any
    trial = evaluator.finish(_tuned(evaluator, prepared), builds, timed=False)
    report = FileReport(
        template.name, kind, prepared.config, trial.status, trial.reason, trial.log,
        skipped=prepared.refused, kernels=_kernels(trial),
    )  # fmt: skip
    if trial.status is not Status.OK:
        return report
    candidates = evaluator.candidates(prepared, builds)
    if isinstance(candidates, Cell):
        return FileReport(**{**vars(report), "status": candidates.status, "reason": candidates.reason})

    def at(workload: Workload) -> Candidate | None:
        if binding.why_illegal(prepared.config, workload, evaluator.limits):
            return None
        found = evaluator.candidates(replace(prepared, workloads=(workload,)), builds)
        return None if isinstance(found, Cell) else found[workload.name]

    return _verify(evaluator, report, candidates, at, timed=timed, progress=progress)


def check_callable(evaluator: Evaluator, name: str, *, timed: bool, progress: Progress = lambda _: None) -> FileReport:
    """A callable baseline, by the same protocol."""
    task = evaluator.task
    if library := host.lacks(task.baselines[name], gpu=evaluator.device.kind == "gpu"):
        return FileReport(name, "callable", {}, None, f"not here: {library} is not installed")
    everything = _everything(evaluator)

    def at(workload: Workload) -> Host:
        return Host(str(task.folder), name, dict(workload.dims))

    report = FileReport(name, "callable", {}, Status.OK, "")
    return _verify(evaluator, report, {w.name: at(w) for w in everything}, at, timed=timed, progress=progress)


def _verify(evaluator: Evaluator, report: FileReport, arms: Mapping[str, Candidate | Host], at: At, *, timed: bool,
            progress: Progress) -> FileReport:  # fmt: skip
    held_out = {w.name for w in evaluator.task.held_out}
    adopt = report.kind == "baseline" and not evaluator.checker.baseline_outputs  # the first that is correct
    checks: list[Checked] = []
    cells: dict[str, Cell] = {}
    status, reason = Status.OK, ""
    for workload in _served(evaluator, arms):
        progress(f"{report.name}: {workload.name}")
        checked = evaluator.checker.verify(arms[workload.name], workload, at, adopt=adopt)
        checks.append(checked)
        if checked.status is not Status.OK:
            status, reason = checked.status, f"{workload.name} ({checked.distribution}): {checked.reason}"
            break
        if timed and workload.name not in held_out:
            cells[workload.name] = cell = evaluator.time(arms[workload.name], workload)
            if cell.status is not Status.OK:
                status, reason = cell.status, f"{workload.name}: {cell.reason}"
                break
    return FileReport(**{**vars(report), "status": status, "reason": reason, "checks": tuple(checks), "cells": cells})


def _served(evaluator: Evaluator, arms: Mapping[str, Candidate | Host]) -> list[Workload]:
    return [w for w in _everything(evaluator) if w.name in arms]


def _everything(evaluator: Evaluator) -> list[Workload]:
    """What is tuned for, then what is held out."""
    return [*evaluator.workloads(), *evaluator.workloads(held_out=True)]


def _tuned(evaluator: Evaluator, prepared: Prepared) -> Prepared:
    """The same with the workloads that are tuned for, where it serves any: the screen is one of those."""
    tuned = {w.name for w in evaluator.workloads()}
    kept = tuple(w for w in prepared.workloads if w.name in tuned) or prepared.workloads
    return Prepared(prepared.number, prepared.binding, prepared.config, kept, prepared.programs, prepared.refused)


def _mutants(evaluator: Evaluator) -> list[Mutant]:
    workloads = evaluator.workloads()
    return mutants(evaluator.checker, evaluator.representative(workloads)) if workloads else []


def _kernels(trial: Trial) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"setting": str(setting), "entry": k.entry, "registers": k.registers, "spill_bytes": k.spill_bytes,
         "shared_bytes": k.shared_bytes, "code_bytes": k.code_bytes}
        for setting, kernels in trial.resources.items()
        for k in kernels
    )  # fmt: skip


def task_files(
    task: Task, language: str, templates: Sequence[Template], config: Config | None
) -> list[tuple[str, Template]]:
    """What `check` looks at, read and its configuration accepted before anything runs: the task's baselines, then the
    given templates or all of the task's own."""
    found = [("baseline", Template.load(path)) for path in task.files("baselines", language)]
    for template in templates or map(Template.load, task.files("templates", language)):
        if template.language != language:
            raise UsageError(
                f"{template.file or template.name} is {template.language}; this device takes {language}",
                hint="choose with --device",
            )
        template.complete(config or {})
        found.append(("template", template))
    if not found:
        raise UsageError(f"the task {task.name} has no {language} files", hint=f"put one into {task.folder}/baselines")
    return found
