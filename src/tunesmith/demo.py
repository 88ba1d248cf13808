"""`make demo`: one real kernel tuned on the machine at hand, from the kernel to a proven result, in about two minutes.

On a GPU the top-k softmax of a mixture-of-experts router; on a CPU, through OpenCL, a row softmax. The templates were
written by a language model; checks, search and timing are done live.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunesmith.binding import Binding
from tunesmith.calibrate import calibrate, load
from tunesmith.cli import Progress, reported
from tunesmith.compiling import Compilers
from tunesmith.device import Device, find_device
from tunesmith.errors import UsageError
from tunesmith.evaluate import Evaluator
from tunesmith.front import print_table, say, table
from tunesmith.messages import Candidate
from tunesmith.mutants import mutants
from tunesmith.playoff import PROCESSES, Outcome, Pairing, play
from tunesmith.space import Space
from tunesmith.sweep import Sweep, sweep
from tunesmith.target import target_us
from tunesmith.task import Task, Workload
from tunesmith.template import Template
from tunesmith.trial import Cell, Status, Trial

KERNELS = {"cuda": ("topk_softmax", "naive.cu", "expose_1.cu"), "opencl": ("row_softmax", "naive.cl", "onepass.cl")}
SECONDS = 60.0


def demo(suite: Path, device: Device, seconds: float = SECONDS) -> dict[str, Any]:
    """Tune one kernel and give what came of it."""
    progress = Progress(quiet=False)
    name, baseline_file, template_file = KERNELS[device.language]
    if not (suite / name / "task.py").is_file():
        raise UsageError(f"no task in {suite / name}", hint="run it from the repository's folder")
    task = Task.load(suite / name)
    with Compilers(environment=device.environment) as compilers:
        say(f"device    {device.name}, {device.facts['name']}")
        known = load(device) or calibrate(
            device, compilers, lambda done, of: progress(f"measuring what this device can do: {done} of {of}")
        )
        evaluator = Evaluator(task, device, compilers, calibration=known)
        template = Binding(Template.load(suite / name / "templates" / template_file), task)
        workloads = [w for w in evaluator.workloads() if template.why_illegal(template.template.default, w) is None]
        space = Space(template.template, task, settings=task.settings(workloads), limits=device.limits)
        say(f"kernel    {name}/{baseline_file}; workloads {', '.join(w.name for w in workloads)}")
        caught = mutants(evaluator.checker, evaluator.representative(workloads))
        made, accepted = sum(m.caught is not None for m in caught), sum(m.caught is False for m in caught)
        say(f"tester    {made} wrong outputs made, {accepted} accepted")
        base = Binding(Template.load(suite / name / "baselines" / baseline_file), task)
        first = _must(evaluator.evaluate(0, base, base.template.default, workloads))
        evaluator.baseline_us = {w: cell.timing.time_us for w, cell in first.cells.items() if cell.timing}
        size = f"{space.cartesian:,} combinations, {space.count().value:,} legal"
        say(f"template  {template_file}: {len(space.parameters)} parameters, {size}")
        found = sweep(evaluator, template, space, workloads, seconds=seconds, progress=lambda s: progress(_line(s)))
        progress.done()
        say(f"search    {len(found.trials)} configurations in {found.seconds:.0f} s: {_statuses(found)}")
        best = _must(found.best)
        say("proof     verifying the winner on every workload and distribution, then a play-off in fresh processes")
        arms = [
            _candidates(evaluator, binding, trial, workloads) for binding, trial in ((base, first), (template, best))
        ]
        _verify(evaluator, arms[1])
        pairs = [Pairing(w, arms[0][w.name], arms[1][w.name]) for w in workloads]
        outcomes = play(
            evaluator.checker, pairs, progress=lambda done, of: progress(f"play-off: process {done} of {of}")
        )
        progress.done()
    _show(evaluator, best, outcomes, workloads)
    return {"task": name, "device": device.name, "config": dict(best.config), "trials": len(found.trials),
            "speedup": {w: vars(o.ratio) for w, o in outcomes.items()}}  # fmt: skip


def _must(trial: Trial | None) -> Trial:
    if trial is None or trial.status is not Status.OK:
        reason = f"{trial.status}: {trial.reason}" if trial else "no configuration was right"
        raise UsageError(f"the demo's kernel did not pass here: {reason}")
    return trial


def _candidates(
    evaluator: Evaluator, binding: Binding, trial: Trial, workloads: Sequence[Workload]
) -> dict[str, Candidate]:
    prepared = evaluator.prepare(0, binding, trial.config, workloads)
    assert not isinstance(prepared, Trial)
    found = evaluator.candidates(prepared, evaluator.builds(prepared))
    assert not isinstance(found, Cell)
    return found


def _verify(evaluator: Evaluator, candidates: dict[str, Candidate]) -> None:
    for workload in evaluator.workloads():
        if workload.name in candidates:
            checked = evaluator.checker.verify(candidates[workload.name], workload)
            if checked.status is not Status.OK:
                where = f"{checked.workload} ({checked.distribution})"
                raise UsageError(f"the winner is {checked.status} on {where}: {checked.reason}")


def _line(found: Sweep) -> str:
    best = found.best
    score = f"{best.score:.2f}x" if best and best.score else "–"
    return f"{found.seconds:4.0f} s  {len(found.trials)} tried, best {score}"


def _statuses(found: Sweep) -> str:
    return ", ".join(
        f"{count} {status}" for status, count in sorted(found.by_status().items(), key=lambda item: -item[1])
    )


def _show(evaluator: Evaluator, best: Trial, outcomes: dict[str, Outcome], workloads: Sequence[Workload]) -> None:
    rows = table("workload", "before, µs", "after, µs", "faster", "95 % interval", "of the target")
    for workload in workloads:
        outcome, known = outcomes[workload.name], evaluator.calibration
        target = target_us(evaluator.task, workload, known) if known else None
        ratio = outcome.ratio
        rows.add_row(
            workload.name,
            f"{outcome.baseline_us:.2f}",
            f"{outcome.challenger_us:.2f}",
            f"{ratio.ratio:.2f}x" + ("" if outcome.won else " (not claimed)"),
            f"{ratio.low:.2f} to {ratio.high:.2f}",
            f"{target / outcome.challenger_us:.2f}" if target else "–",
        )
    print_table(rows)
    say("config    " + " ".join(f"{name}={value}" for name, value in best.config.items()))
    say("target    the time of a copy that moves the same bytes, or of the same flops at the measured peak")
    say("belief    outputs judged against a float64 oracle on every workload and distribution;")
    say(
        f"          {PROCESSES} fresh processes, both kernels in turn on the same buffers, caches cold; intervals over processes"
    )


def main() -> None:
    with reported(False):
        started = time.monotonic()
        suite = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("suite")
        device = find_device()
        try:
            answer = demo(suite, device)
        finally:
            device.close()
        Path("runs").mkdir(exist_ok=True)
        kept = Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}.json"
        kept.write_text(json.dumps(answer, indent=1))
        say(f"{time.monotonic() - started:.0f} s in all; kept in {kept}")


if __name__ == "__main__":
    main()
