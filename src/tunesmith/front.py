"""What each verb does, as data, and how a person is shown it. The command line calls these; so may a script.

A verb's function gives the dict that `--json` prints; `show_…` makes tables of that same dict, so nothing is shown that a
program could not read too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tunesmith import review
from tunesmith.calibrate import Calibration, load
from tunesmith.calibrate import calibrate as measure
from tunesmith.checker import Checked
from tunesmith.compiling import Compilers
from tunesmith.device import Device, all_devices, describe, find_device
from tunesmith.errors import MissingError, UsageError
from tunesmith.limits import named
from tunesmith.review import FileReport
from tunesmith.solutions import Count
from tunesmith.space import Space
from tunesmith.task import Task
from tunesmith.template import Config, Template
from tunesmith.trial import Cell, Status

Progress = Callable[[str], None]


# --- devices -----------------------------------------------------------------------------------------------------------


def devices(name: str | None, *, calibrate: bool, progress: Progress) -> dict[str, Any]:
    """The devices that open here, and why a backend has none."""
    found, missing = [], []
    for device in [find_device(name)] if name else all_devices():
        if isinstance(device, MissingError):
            missing.append({"reason": device.message, "hint": device.hint})
            continue
        try:
            known = _calibrate(device, progress) if calibrate else load(device)
            found.append({**describe(device), "calibration": asdict(known) if known else None})
        finally:
            device.close()
    if not found:
        raise MissingError("no device works here: " + "; ".join(m["reason"] for m in missing),
                           hint="; ".join(m["hint"] for m in missing if m["hint"]))  # fmt: skip
    return {"devices": found, "missing": missing}


def _calibrate(device: Device, progress: Progress) -> Calibration:
    with Compilers(environment=device.environment) as compilers:
        return measure(device, compilers, lambda done, of: progress(f"{device.name}: {done} of {of}"))


def show_devices(answer: dict[str, Any]) -> None:
    columns = ("device", "name", "driver", "units", "shared", "copy", "f32", "bf16", "launch")
    rows, lines = table(*columns), []
    for device in answer["devices"]:
        limits, known = device["limits"], device["calibration"]
        row = (
            device["id"], device["name"], str(device.get("driver", "")), str(limits["sms"]),
            f"{limits['max_shared_bytes'] // 1024} KiB", *_calibrated(known),
        )  # fmt: skip
        rows.add_row(*row)
        lines += [*(f"{column}: {value}" for column, value in zip(columns, row, strict=True)), ""]
    if fits(rows):
        print_table(rows)
    else:
        say("\n".join(lines))
    if not any(device["calibration"] for device in answer["devices"]):
        say("not calibrated: tunesmith devices --calibrate measures what a copy and an FMA reach here")
    for missing in answer["missing"]:
        say(f"not here: {missing['reason']}")


def _calibrated(known: Mapping[str, Any] | None) -> tuple[str, str, str, str]:
    if known is None:
        return "–", "–", "–", "–"
    size, us = max((float(size), us) for size, us in known["copy_us"])
    rates = known["peaks"]

    def rate(name: str) -> str:
        return f"{rates[name]['flops_per_s'] / 1e12:.1f} TFLOP/s" if name in rates else "–"

    return f"{size / us / 1e3:.0f} GB/s", rate("f32"), rate("bf16"), f"{known['launch_us']:.2f} µs"


# --- check -------------------------------------------------------------------------------------------------------------


def check(folder: Path, templates: list[Path], *, config: Config | None, device: str | None, seed: int | None,
          threads: int | None, timed: bool, callables: bool, progress: Progress) -> dict[str, Any]:  # fmt: skip
    """Verify a task's kernels on one device."""
    task = Task.load(folder)
    for path in templates:
        _must_be_file(path)
    held = find_device(device, threads=threads)
    try:
        report = review.check(task, *map(Template.load, templates), device=held, config=config, callables=callables,
                              timed=timed, seed=seed, progress=progress)  # fmt: skip
        return {
            "task": task.name, "device": describe(held), "right": report.right,
            "tester": {
                "mutants": len(report.mutants), "passed": [f"{m.name} ({m.output})" for m in report.weak],
                "skipped": [f"{m.name} ({m.output})" for m in report.mutants if m.caught is None],
            },
            "files": [_file(file) for file in report.files],
        }  # fmt: skip
    finally:
        held.close()


def _file(file: FileReport) -> dict[str, Any]:
    return {
        "name": file.name, "kind": file.kind, "status": str(file.status or "missing"), "reason": file.reason, "log": file.log,
        "config": dict(file.config), "kernels": list(file.kernels), "not_served": dict(file.skipped),
        "checks": [_checked(c) for c in file.checks],
        "cells": [_cell(c) for c in file.cells.values()],
    }  # fmt: skip


def _checked(checked: Checked) -> dict[str, Any]:
    return {"workload": checked.workload, "worst_distribution": checked.distribution, "status": str(checked.status),
            "reason": checked.reason, "error": checked.error}  # fmt: skip


def _cell(cell: Cell) -> dict[str, Any]:
    timing = cell.timing
    return {
        "workload": cell.workload, "status": str(cell.status), "time_us": timing.time_us if timing else None,
        "low_us": timing.low_us if timing else None, "high_us": timing.high_us if timing else None,
        "target_fraction": cell.target_fraction, "occupancy": cell.occupancy or None,
    }  # fmt: skip


def show_check(answer: dict[str, Any]) -> None:
    tester = answer["tester"]
    if tester["passed"]:
        say(f"the check is too weak for this task: it accepts {', '.join(tester['passed'])}")
    else:
        say(f"tester: {tester['mutants'] - len(tester['skipped'])} wrong outputs made, all rejected")
    workloads = list(dict.fromkeys(c["workload"] for f in answer["files"] for c in f["cells"]))
    registers = ["registers"] if any(k["registers"] for f in answer["files"] for k in f["kernels"]) else []
    wide = table("", "verdict", "error", *registers, *workloads)
    tall = table("", "verdict", "workload", "error", *registers, "time", text=3)
    for file in answer["files"]:
        cells = {c["workload"]: c for c in file["cells"]}
        what = (f"{file['name']} ({file['kind']})", file["status"])
        figures = [_error(file), *(_registers(file) for _ in registers)]
        wide.add_row(*what, *figures, *(_time(cells.get(w)) for w in workloads))
        for index, (workload, cell) in enumerate(cells.items() or [("–", None)]):
            if index == 0:
                tall.add_row(*what, workload, *figures, _time(cell))
            else:
                tall.add_row("", "", workload, *("" for _ in figures), _time(cell))
    print_table(wide if fits(wide) else tall)
    times = "times in µs (fraction of the target); " if workloads else ""
    say(f"{times}error in units of what the tolerance allows; {answer['device']['id']}, {answer['device']['name']}")
    for file in answer["files"]:
        if file["reason"]:
            say(f"{file['name']}: {file['reason']}")
        for workload, reason in file["not_served"].items():
            say(f"{file['name']} does not serve {workload}: {reason}")


def _error(file: Mapping[str, Any]) -> str:
    """The worst error of the checks that made the verdict; a failure that is no matter of numbers has none."""
    worst = max((c["error"] for c in file["checks"] if c["status"] == file["status"]), default=None)
    return "–" if worst is None or (worst == 0.0 and file["status"] != Status.OK) else f"{worst:.2f}"


def _registers(file: Mapping[str, Any]) -> str:
    return "/".join(dict.fromkeys(str(k["registers"]) for k in file["kernels"] if k["registers"])) or "–"


def _time(cell: Mapping[str, Any] | None) -> str:
    if cell is None or cell["time_us"] is None:
        return "–"
    fraction = f" ({cell['target_fraction']:.2f})" if cell["target_fraction"] else ""
    return f"{cell['time_us']:.2f}{fraction}"


# --- space -------------------------------------------------------------------------------------------------------------


def space(file: Path, folder: Path | None, setting: Mapping[str, int | str], arch: str | None) -> dict[str, Any]:
    """Count a template's configurations."""
    _must_be_file(file)
    template = Template.load(file)
    task = Task.load(folder) if folder else None
    limits = named(arch) if arch else None
    found = Space(template, task, limits=limits, **dict[str, Any](setting))
    legal = found.count()
    answer: dict[str, Any] = {
        "template": template.name, "settings": [str(s) for s in found.settings], "cartesian": found.cartesian,
        "legal": legal.value, "exact": legal.exact,
        "removed_by": {reason: count.value for reason, count in found.removed_by().items()},
        "predicates": {reason: e.text for reason, e in found.predicates.items()},
        "parameters": {p.name: list(p.values) for p in template.parameters},
    }  # fmt: skip
    if not legal.exact:
        answer |= {"low": legal.low, "high": legal.high}
    if limits is not None:
        over: Count = found.over_limits()
        answer |= {"arch": limits.arch, "stands_for": limits.name, "over_limits": over.value}
    if template.parameters and (why := found.why_illegal(template.default)):
        answer["default_illegal"] = why
    return answer


def _must_be_file(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a folder; a template is a .cu or .cl file")
    if not path.exists():
        raise UsageError(f"no such file: {path}")


def show_space(answer: dict[str, Any]) -> None:
    about = "" if answer["exact"] else f" (estimated, {answer['low']:,} to {answer['high']:,})"
    say(f"{answer['template']} for {'; '.join(answer['settings'])}")
    say(
        f"{answer['cartesian']:,} combinations of {len(answer['parameters'])} parameters, {answer['legal']:,} legal{about}"
    )
    if answer["removed_by"]:
        rows = table("constraint", "removes alone")
        for reason, count in answer["removed_by"].items():
            rows.add_row(reason, f"{count:,}")
        print_table(rows)
    for reason, text in answer["predicates"].items():
        say(f"decided at dispatch: {reason} ({text})")
    if "arch" in answer:
        say(f"{answer['over_limits']:,} legal ones exceed the limits of {answer['arch']} ({answer['stands_for']})")
    if "default_illegal" in answer:
        say(f"the default is not legal: {answer['default_illegal']}")


# --- a person's eyes ---------------------------------------------------------------------------------------------------


def table(*columns: str, text: int = 2) -> Any:
    """A table whose first columns are text and whose others are figures; it is never narrower than its headers' words."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rows = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        longest = max(map(len, column.split()), default=0)
        rows.add_column(column, justify="left" if index < text else "right", overflow="fold", min_width=longest)
    return rows


def fits(rows: Any) -> bool:
    """Whether a table stands side by side as it is."""
    console = _console()
    unbounded = console.options.update(width=10_000)
    return bool(console.measure(rows, options=unbounded).maximum <= console.width)


def print_table(rows: Any) -> None:
    _console().print(rows, crop=False)


def say(text: str) -> None:
    """A note: wrapped at words in a terminal, a line as it is elsewhere."""
    console = _console()
    console.print(text, markup=False, soft_wrap=not console.is_terminal)


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=160, highlight=False)
