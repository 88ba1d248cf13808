"""`result/`: what a user takes home from a run. Tuned sources that compile by themselves, the table, the proof.

Written from a `Result`; nothing is measured or decided here.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from tunesmith.campaign import digest_of
from tunesmith.playoff import Outcome
from tunesmith.result import Result, Row, speedup_fields
from tunesmith.run import Place
from tunesmith.template import Template
from tunesmith.trial import Trial


def write_result(result: Result, folder: Path) -> None:
    """Write the folder anew, and put it in place whole."""
    run = result.run
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    answer = result.as_json()
    sources = _sources(result, fresh)
    answer["table"] = [row | {"source": source} for row, source in zip(answer["table"], sources["rows"], strict=True)]
    if run.folder is not None and (run.folder / "task").is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "templates")
        shutil.copytree(run.folder / "task", fresh / "task", ignore=ignored)
    kept = ("task", "baseline", "general", "table", "fallback", "improved", "proven", "cells")
    measured_on = _identity(result) | {"result_digest": digest_of(fresh / "task")}
    table = {key: answer[key] for key in kept} | {"source": sources["general"], "measured_on": measured_on}
    (fresh / "table.json").write_text(json.dumps(table, indent=1, allow_nan=False))
    (fresh / "proof.json").write_text(json.dumps(_proof(result), indent=1, allow_nan=False))
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
    os.replace(fresh, folder)
    shutil.rmtree(old, ignore_errors=True)


def _sources(result: Result, folder: Path) -> dict[str, Any]:
    """The tuned files: each template once more, with other values on its marked lines."""
    general = result.general
    written: dict[str, Any] = {"general": None, "rows": []}
    if general is not None:
        first = result.run.begin["workloads"][0]["setting"]
        written["general"] = _write(result, folder, "general", general, first["dims"], first["types"])
    for index, row in enumerate(result.table, 1):
        written["rows"].append(_write(result, folder, f"row-{index}", result.run.trial(row.trial), *_of(row)))
    return written


def _of(row: Row) -> tuple[dict[str, int], dict[str, str]]:
    return dict(row.dims), dict(row.types)


def _write(
    result: Result, folder: Path, name: str, trial: Trial, dims: dict[str, int], types: dict[str, str]
) -> str | None:
    file = next(t["file"] for t in result.run.begin["templates"] if t["name"] == trial.template)
    if file is None or result.run.folder is None:
        return None
    template = Template.load(result.run.folder / "templates" / file)
    marked = {mark.name for mark in template.dim_lines}
    path = folder / (name + Path(file).suffix)
    path.write_text(template.render(trial.config, {n: v for n, v in dims.items() if n in marked}, types))
    return path.name


def _identity(result: Result) -> dict[str, Any]:
    """What the table was measured on; elsewhere it is stale until it is proven again."""
    run = result.run
    told = ("name", "driver", "runtime", "id")
    return {
        "device": {key: run.device[key] for key in told if key in run.device}, "tunesmith": run.begin["version"],
        "task_digest": run.begin["task_digest"], "templates": {t["name"]: t["digest"] for t in run.begin["templates"]},
        "l2": run.begin["l2"], "threads": run.begin["threads"],
    }  # fmt: skip


def _proof(result: Result) -> dict[str, Any]:
    run = result.run
    return {
        "device": run.device, "seed": run.begin["seed"], "check_seed": run.begin.get("check_seed"),
        "baselines": [vars(b) | {"time_us": dict(b.time_us)} for b in run.baselines],
        "verified": [{k: v for k, v in event.items() if k not in ("event", "at")} for event in run.verified.values()],
        "play_off": [_played(result, place, one) for place, one in result.outcomes.items()],
    }  # fmt: skip


def _played(result: Result, place: Place, one: Outcome) -> dict[str, Any]:
    number, workload = place
    return {
        "trial": number, "workload": workload, "ratio": speedup_fields(one.ratio, not one.reason), "reason": one.reason,
        "log_ratios": list(one.logs), "baseline_us": one.baseline_us, "challenger_us": one.challenger_us,
        "won": result.won.get(place, False),
    }  # fmt: skip
