"""A result played off again: after a new driver or compiler, on another device. Which rows of its table still hold?

Needs only the `result/` folder: the tuned sources, the task and its baselines are in it. Decides nothing anew: what served
a workload is verified there, on the held-out workloads too, and plays against the same baseline.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith.arena import Live
from tunesmith.calibrate import load
from tunesmith.campaign import digest_of, with_residency
from tunesmith.compiling import Compilers
from tunesmith.device import Device, find_device
from tunesmith.errors import UsageError
from tunesmith.evaluate import Evaluator
from tunesmith.expression import Expression
from tunesmith.playoff import PROCESSES, Found, Outcome, outcomes
from tunesmith.result import speedup_fields, stands_alone
from tunesmith.run import Baseline, Place
from tunesmith.task import Task, Workload
from tunesmith.template import Template
from tunesmith.trial import Status

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _Row:
    """A row as it was handed over, with the workloads that fall into it."""

    number: int
    fields: Mapping[str, Any]
    template: Template
    workloads: tuple[str, ...]


def prove(folder: Path, *, device: str | None, threads: int | None, progress: Progress) -> dict[str, Any]:
    """Play a table off again, and say which rows hold."""
    table = _table(folder)
    if not table["table"]:
        raise UsageError(f"{folder} has no table: nothing was proven, so there is nothing to prove again")
    measured_on = table["measured_on"]
    held = find_device(device, threads=threads or measured_on["threads"])
    try:
        task = with_residency(Task.load(folder / "task"), measured_on["l2"])
        with Compilers(environment=held.environment) as compilers:
            evaluator = Evaluator(task, held, compilers, seed=secrets.randbits(48), calibration=load(held))
            rows = _rows(folder, table, evaluator.workloads(), held)
            live = Live.of(evaluator, [row.template for row in rows])
            opponent = _opponent(live, table["fallback"])
            fallen = _verified(live, rows, progress)
            places = [(row.number, w) for row in rows for w in row.workloads if (row.number, w) not in fallen]
            found = _played(live, rows, places, progress)
            stale = _stale(measured_on, held, folder)
            answer = _answer(folder, rows, outcomes(places, found), fallen, opponent, invariant=task.batch_invariant)
            return answer | {"device": live.describe(), "measured_on": measured_on, "stale": stale}
    finally:
        held.close()


def _table(folder: Path) -> dict[str, Any]:
    try:
        table: dict[str, Any] = json.loads((folder / "table.json").read_text())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} is no result: table.json: {error}", hint="a run keeps its own in RUN/result"
        ) from None
    return table


def _rows(folder: Path, table: Mapping[str, Any], workloads: Sequence[Workload], device: Device) -> list[_Row]:
    found = []
    for number, fields in enumerate(table["table"], 1):
        template = Template.load(folder / fields["source"])
        if template.language != device.language:
            raise UsageError(f"{fields['source']} is {template.language}; {device.name} takes {device.language}",
                             hint="choose with --device")  # fmt: skip
        found.append(_Row(number, fields, template, tuple(w.name for w in workloads if serves(fields, w))))
    return found


def serves(row: Mapping[str, Any], workload: Workload) -> bool:
    """Whether a row of a table speaks of this workload."""
    if any(workload.types.get(n) != v for n, v in row["types"].items()):
        return False
    if any(workload.dims.get(n) != v for n, v in row["dims"].items()):
        return False
    return all(
        low is None or low <= Expression.parse(name).integer(workload.dims) <= high
        for name, (low, high) in row["range"].items()
    )


def _opponent(live: Live, name: str) -> Baseline:
    """The baseline of the table, verified here."""
    for baseline in live.measured_baselines():
        if baseline.name == name:
            if baseline.status is Status.OK:
                last = live.verified(baseline)
                if last.status is Status.OK:
                    live.face(baseline, ())
                    return baseline
                raise UsageError(f"the baseline {name} is {last.status} here, on {last.workload}: {last.reason}")
            raise UsageError(f"the baseline {name} is {baseline.status} here: {baseline.reason}")
    raise UsageError(f"the task in the result has no baseline {name} for {live.device.name}")


def _verified(live: Live, rows: Sequence[_Row], progress: Progress) -> dict[Place, str]:
    fallen: dict[Place, str] = {}
    for row in rows:
        entry = (row.template.name, row.template.default)
        for workload in (*row.workloads, *live.held_out(entry)):
            progress(f"verifying row {row.number} on {workload}")
            checked = live.verify(entry, workload)
            if checked.status is not Status.OK:
                fallen[row.number, workload] = f"{checked.status} ({checked.distribution}): {checked.reason}"
    return fallen


def _played(live: Live, rows: Sequence[_Row], places: Sequence[Place], progress: Progress) -> list[Found]:
    entries = {row.number: (row.template.name, row.template.default) for row in rows}
    found: list[Found] = []
    while places and len(found) < PROCESSES:
        progress(f"play-off: process {len(found) + 1} of {PROCESSES}")
        found.append(live.play(entries, places, found, seed=secrets.randbits(32)))
    return found


def _stale(measured_on: Mapping[str, Any], device: Device, folder: Path) -> list[str]:
    """What is not as it was when the table was made."""
    here = {**device.facts, "id": device.name}
    was = measured_on["device"]
    found = [f"{key}: {was[key]}, here {here[key]}" for key in ("name", "driver", "runtime") if key in was and key in here
             and was[key] != here[key]]  # fmt: skip
    if measured_on["result_digest"] != digest_of(folder / "task"):
        found.append("the task or a baseline was changed since")
    return found


def _answer(folder: Path, rows: Sequence[_Row], played: Mapping[Place, Outcome], fallen: Mapping[Place, str],
            opponent: Baseline, *, invariant: bool) -> dict[str, Any]:  # fmt: skip
    told = []
    for row in rows:
        wrong = {w: reason for (number, w), reason in fallen.items() if number == row.number}
        mine = [played.get((row.number, w)) for w in row.workloads]
        holds = bool(mine) and not wrong and (stands_alone(mine) if invariant else all(one and one.won for one in mine))
        cells = [_cell(w, played.get((row.number, w)), wrong.get(w, "")) for w in row.workloads]
        told.append({**row.fields, "cells": cells, "fallen": wrong, "holds": holds})
    return {"result": str(folder), "baseline": opponent.name, "rows": told, "holds": all(row["holds"] for row in told)}


def _cell(workload: str, one: Outcome | None, wrong: str) -> dict[str, Any]:
    if one is None or one.reason:
        return {"workload": workload, "won": False, "reason": wrong or (one.reason if one else ""), "speedup": None}
    return {"workload": workload, "won": one.won, "reason": "", "speedup": speedup_fields(one.ratio, True),
            "baseline_us": one.baseline_us, "time_us": one.challenger_us}  # fmt: skip
