"""The verbs that make runs, go on with them, and read them: as data, and as tables of that data.

A verb's function gives the dict that `--json` prints; `show_…` is for a person. The command line calls these.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tunesmith.arena import Arena
from tunesmith.build import cache_folder
from tunesmith.campaign import Order, resumed, started
from tunesmith.errors import Interrupted, UsageError
from tunesmith.front import fits, print_table, say, table
from tunesmith.handover import write_result
from tunesmith.journal import trial_fields
from tunesmith.loops import search as run_search
from tunesmith.result import Result
from tunesmith.run import Run, run_folders
from tunesmith.template import Template
from tunesmith.trial import Trial
from tunesmith.watch import Watch

BEST = 10  # trials that `show` lists
MADE = ("builds", "pocl-kernels")  # folders of the cache that compilers fill


def search(order: Order, *, quiet: bool) -> dict[str, Any]:
    """Search a task's templates; the result is in the run's folder too."""
    with started(order) as (run, arena):
        return _searched(run, arena, quiet=quiet)


def tune(task: str | Path, templates: Sequence[str | Path] = (), *, budget: str | Sequence[str] = (), quiet: bool = True,
         **order: Any) -> Result:  # fmt: skip
    """Search a task's templates and prove what is found; `order` takes what `tunesmith search` has as options."""
    given = (budget,) if isinstance(budget, str) else tuple(budget)
    run = order.pop("run", None)
    asked = Order(Path(task), [Path(t) for t in templates], budget=given, run=Path(run) if run else None, **order)
    with started(asked) as (run, arena):
        _searched(run, arena, quiet=quiet)
        return Result(run)


def resume(folder: Path, *, quiet: bool) -> dict[str, Any]:
    """Go on with a run where it was; a run that is done gives its result again."""
    run = Run.read(folder)
    if run.ended:
        result = Result(run)
        if not (folder / "result" / "table.json").exists():  # it ended while they were written
            write_result(result, folder / "result")
        return result.as_json()
    with resumed(folder) as (run, arena):
        return _searched(run, arena, quiet=quiet)


def replay(folder: Path) -> dict[str, Any]:
    """A run's result, derived again from its journal alone."""
    return Result(Run.read(folder)).as_json()


def _searched(run: Run, arena: Arena, *, quiet: bool) -> dict[str, Any]:
    with _interruptible(run), Watch(run, quiet=quiet):
        run_search(run, arena)
    result = Result(run)
    if run.folder is not None:
        write_result(result, run.folder / "result")
    return result.as_json()


@contextlib.contextmanager
def _interruptible(run: Run) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        best = run.best
        so_far = f"best so far {best.score:.3f}x, not proven" if best is not None else "nothing measured yet"
        raise Interrupted(f"interrupted after {len(run.trials)} trials; {so_far}",
                          hint=f"tunesmith resume {run.folder}") from None  # fmt: skip


def listed(parent: Path) -> dict[str, Any]:
    """The runs in a folder, with their state."""
    return {"runs": [_listed(folder) for folder in run_folders(parent)]}


def _listed(folder: Path) -> dict[str, Any]:
    try:
        run = Run.read(folder)
    except UsageError as error:
        return {"run": str(folder), "state": "unreadable", "reason": error.message}
    result = Result(run)
    ratio = result.general_ratio
    return {
        "run": str(folder), "state": run.state, "task": run.begin["task"], "device": run.device.get("name", run.begin["device"]),
        "trials": len(run.trials), "speedup": ratio.ratio if ratio else None, "proven": result.proven,
        "improved": result.improved, "seconds": round(run.seconds, 1),
    }  # fmt: skip


def show_listed(answer: Mapping[str, Any]) -> None:
    if not answer["runs"]:
        say("no runs here")
        return
    rows = table("run", "state", "task", "trials", "speedup", "seconds", text=3)
    for run in answer["runs"]:
        if "reason" in run:
            rows.add_row(run["run"], run["state"], run["reason"], "–", "–", "–")
            continue
        proof = "" if run["proven"] else " (not proven)"
        speedup = f"{run['speedup']:.2f}x{proof}" if run["speedup"] else "–"
        rows.add_row(run["run"], run["state"], run["task"], str(run["trials"]), speedup, f"{run['seconds']:.0f}")
    print_table(rows)


# --- one trial, whole ---------------------------------------------------------------------------------------------------


def show(folder: Path, number: int | None) -> dict[str, Any]:
    """A run with its best trials, or one trial whole: its source, what it changed, its resources and times."""
    run = Run.read(folder)
    if number is None:
        scored = sorted((t for t in run.trials if t.score is not None), key=lambda t: -(t.score or 0.0))
        best = [
            {"trial": t.number, "score": t.score, "template": t.template, "config": dict(t.config)}
            for t in scored[:BEST]
        ]
        return {**Result(run).as_json(), "best": best}
    trial = run.trial(number)
    template = _template_of(run, trial.template)
    source = default = None
    if template is not None:
        source, default = template.render(trial.config), template.source
    diff = list(difflib.unified_diff((default or "").splitlines(), (source or "").splitlines(), "default", f"trial {number}",
                                     lineterm="", n=0))  # fmt: skip
    return {**trial_fields(trial), "source": source, "diff": "\n".join(diff), "profile": _profiled_by(run, trial)}


def trials_as_csv(folder: Path) -> str:
    """A run's trials, a line each."""
    records = Run.read(folder).records()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else ["trial"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _template_of(run: Run, name: str) -> Template | None:
    file = next((t["file"] for t in run.begin["templates"] if t["name"] == name), None)
    return Template.load(run.folder / "templates" / file) if file and run.folder else None


def _profiled_by(run: Run, trial: Trial) -> str | None:
    """The command that shows one trial's kernel to NVIDIA's profiler; its clocks are left alone."""
    template = _template_of(run, trial.template)
    if template is None or template.language != "cuda" or not run.begin["device"].startswith("cuda"):
        return None
    config = ",".join(f"{name}={value}" for name, value in trial.config.items())
    check = f"tunesmith check {run.folder}/task {template.file} --device {run.begin['device']} --no-callables"
    return f"ncu --target-processes all --clock-control none --set full {check} --config {config}"


def show_shown(answer: Mapping[str, Any]) -> None:
    if "number" not in answer:
        show_result(answer)
        rows = table("trial", "template", "configuration", "score", text=3)
        for one in answer["best"]:
            config = " ".join(f"{n}={v}" for n, v in one["config"].items())
            rows.add_row(str(one["trial"]), one["template"], config, f"{one['score']:.3f}")
        print_table(rows)
        return
    score = f", {answer['score']:.3f}x the baseline (not proven)" if "score" in answer else ""
    say(f"trial {answer['number']} of {answer['template']}: {answer['status']}{score}")
    for key in ("reason", "log"):
        if key in answer:
            say(str(answer[key]))
    for name, cell in answer.get("cells", {}).items():
        if "time_us" in cell:
            share = f", {cell['target_fraction']:.2f} of the target" if "target_fraction" in cell else ""
            say(f"{name}: {cell['time_us']:.2f} µs ({cell['low_us']:.2f} to {cell['high_us']:.2f}){share}")
    for one in answer.get("resources", ()):
        for kernel in one["kernels"]:
            told = ", ".join(
                f"{value} {key.replace('_', ' ')}" for key, value in kernel.items() if isinstance(value, int)
            )
            say(f"{kernel['entry']}: {told or 'its runtime tells nothing'}")
    if answer["profile"]:
        say(f"profile: {answer['profile']}")
    say(answer["diff"] or "the default")


# --- proving a result again --------------------------------------------------------------------------------------------


def show_proved(answer: Mapping[str, Any]) -> None:
    say("the table holds here" if answer["holds"] else "the table does not hold here in full")
    for what in answer["stale"]:
        say(f"not as it was: {what}")
    rows = table("row", "workload", "faster", "95 % interval", "", text=2)
    for row in answer["rows"]:
        for cell in row["cells"]:
            ratio = cell["speedup"]
            figures = (f"{ratio['ratio']:.2f}x", f"{ratio['low']:.2f} to {ratio['high']:.2f}") if ratio else ("–", "–")
            rows.add_row(
                _where(row), cell["workload"], *figures, "holds" if cell["won"] else cell["reason"] or "no win here"
            )
    print_table(rows)
    say(f"against {answer['baseline']}, on {answer['device']['id']}, {answer['device']['name']}")


# --- the cache ---------------------------------------------------------------------------------------------------------


def cache(*, clear: bool) -> dict[str, Any]:
    """What is kept on this machine, and how large it is. `clear` removes what compilers made; the rest is not theirs."""
    folder = cache_folder()
    parts = {
        part.name: {"bytes": sum(f.stat().st_size for f in part.rglob("*") if f.is_file()), "made": part.name in MADE}
        for part in sorted(folder.iterdir()) if part.is_dir()
    } if folder.is_dir() else {}  # fmt: skip
    for name in parts if clear else ():
        if name in MADE:
            shutil.rmtree(folder / name, ignore_errors=True)
    return {"folder": str(folder), "parts": parts, "cleared": [name for name in parts if clear and name in MADE]}


def show_cache(answer: Mapping[str, Any]) -> None:
    rows = table("in " + answer["folder"], "MB", "", text=1)
    for name, part in answer["parts"].items():
        note = "cleared" if name in answer["cleared"] else "what --clear removes" if part["made"] else ""
        rows.add_row(name, f"{part['bytes'] / 1e6:.1f}", note)
    print_table(rows)


# --- results -----------------------------------------------------------------------------------------------------------


def show_result(answer: Mapping[str, Any]) -> None:
    """The result as a person wants it: the verdict, the cells, the configuration, where it is."""
    say(_verdict(answer))
    wide = table("workload", "baseline, µs", "now, µs", "faster", "95 % interval", "of the target", "", text=1)
    for cell in answer["cells"]:
        wide.add_row(*_cell(cell))
    if fits(wide):
        print_table(wide)
    else:
        for cell in answer["cells"]:
            name, base, now, faster, interval, target, note = _cell(cell)
            say(f"{name}: {base} -> {now} µs, {faster} ({interval}), {target} of the target {note}")
    if answer["general"]:
        general = answer["general"]
        say(
            f"general   {general['template']}: "
            + (" ".join(f"{n}={v}" for n, v in general["config"].items()) or "no parameters")
        )
    for row in answer["table"]:
        say(
            f"table     {_where(row)}: {row['template']}, trial {row['trial']}"
            + (f", when {row['when']}" if row["when"] else "")
        )
    if answer["fallback"]:
        say(f"elsewhere {answer['fallback']}, the baseline")
    trials, seconds = answer["trials"], answer["seconds"]
    by = ", ".join(f"{count} {status}" for status, count in trials["by_status"].items())
    say(f"trials    {trials['total']} ({by}) of {answer['space']['legal']:,} legal; {seconds['total']:.0f} s, "
        f"{seconds['compile']:.0f} compiling, {seconds['device']:.0f} on the device")  # fmt: skip
    if answer["outlook"]:
        say(f"outlook   {answer['outlook']}")
    say(f"kept in   {answer['run']}")


def _verdict(answer: Mapping[str, Any]) -> str:
    general = answer["general"]
    if not answer["proven"]:
        best = f"the search saw {general['speedup']['ratio']:.2f}x; " if general and general["speedup"] else ""
        return f"not proven: {best}{answer['reason']}"
    if not answer["improved"]:
        return str(answer["reason"])
    ratio = general["speedup"] if general else None
    whole = (
        f"{ratio['ratio']:.2f}x (95 %: {ratio['low']:.2f} to {ratio['high']:.2f}) " if ratio and ratio["low"] else ""
    )
    left = sum(cell["trial"] is None for cell in answer["cells"])
    counted = f", {left} of {len(answer['cells'])} workloads left to it at 1.00x" if left else ""
    return f"improved: {whole}over {answer['fallback']}{counted}; {answer['reason']}"


def _cell(cell: Mapping[str, Any]) -> tuple[str, ...]:
    ratio = cell["speedup"]
    interval = f"{ratio['low']:.2f} to {ratio['high']:.2f}" if ratio and ratio["low"] else "–"
    note = cell["reason"] or ("" if cell["won"] or not ratio or not ratio["low"] else "no win: the baseline serves")
    return (
        cell["workload"], _figure(cell["baseline_us"]), _figure(cell["time_us"]), f"{ratio['ratio']:.2f}x" if ratio else "–",
        interval, _figure(cell["target_fraction"]), note,
    )  # fmt: skip


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _where(row: Mapping[str, Any]) -> str:
    parts = [f"{name}={value}" for name, value in (*row["dims"].items(), *row["types"].items())]
    for name, (low, high) in row["range"].items():
        parts.append(f"any {name}" if low is None else f"{name} {low}" if low == high else f"{name} {low} to {high}")
    return " ".join(parts) or "everywhere"
