"""What a run came to: a general configuration, a dispatch table, and what proves them. Derived from the run alone.

A row of the table stands only where a win was proven; elsewhere, and outside of what was measured, the baseline serves.
Nothing here measures or decides: the same journal gives the same result, on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tunesmith.budget import outlook
from tunesmith.choice import total
from tunesmith.playoff import Outcome, outcomes
from tunesmith.run import Run
from tunesmith.timing import MINIMUM_EFFECT, Ratio, holm, ratio_over_processes
from tunesmith.trial import Trial

Span = tuple[int | None, int | None, int]  # from, to, and the trial that serves there


@dataclass(frozen=True)
class Row:
    """One line of the table: where it holds, and what serves there."""

    types: Mapping[str, str]
    dims: Mapping[str, int]  # static ones, and dynamic ones that are matched exactly
    ranged: str | None  # a dim, or an expression of dims
    low: int | None
    high: int | None
    when: str | None
    trial: int

    def fields(self, run: Run) -> dict[str, Any]:
        chosen = run.trial(self.trial)
        span = {self.ranged: [self.low, self.high]} if self.ranged else {}
        return {"types": dict(self.types), "dims": dict(self.dims), "range": span, "when": self.when,
                "template": chosen.template, "config": dict(chosen.config), "trial": self.trial}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """A run's result, in the words of the command line's contract (`as_json`)."""

    run: Run

    @property
    def proven(self) -> bool:
        """Whether a play-off was held to its end: half a one claims nothing."""
        return bool(self.run.plays and self.run.ended)

    @cached_property
    def general(self) -> Trial | None:
        choice = self.run.choice
        if choice is not None and choice.general is not None:
            return self.run.trial(choice.general)
        return None if self.proven or self.run.refused() else self.run.best

    @cached_property
    def outcomes(self) -> Mapping[Any, Outcome]:
        """What the play-off came to, per trial and workload."""
        plays = self.run.plays if self.proven else []
        return outcomes(list(dict.fromkeys(key for one in plays for key in one)), plays)

    @cached_property
    def general_ratio(self) -> Ratio | None:
        """The weighted geometric mean of the general configuration's speedups, with its interval over processes."""
        if self.general is None:
            return None
        if not self.proven:
            return Ratio(self.general.score, 0.0, math.inf) if self.general.score else None
        mine = {w: one for (n, w), one in self.outcomes.items() if n == self.general.number}
        if not mine or any(one.reason for one in mine.values()):
            return None
        count = min(len(one.logs) for one in mine.values())
        nothing = dict.fromkeys(self.run.weights, 0.0)  # where it does not serve, the baseline does
        each = [{**nothing, **{w: -one.logs[p] for w, one in mine.items()}} for p in range(count)]
        return ratio_over_processes([-total(one, self.run.weights, self.run.base_us) for one in each])

    @cached_property
    def won(self) -> Mapping[Any, bool]:
        """Which claims hold together: of every cell, and of "general"."""
        p = {key: outcome.ratio.p for key, outcome in self.outcomes.items()}
        if self.proven and self.general_ratio is not None:
            p["general"] = self.general_ratio.p
        lows = {key: outcome.ratio.low for key, outcome in self.outcomes.items()}
        lows["general"] = self.general_ratio.low if self.general_ratio else 0.0
        return {key: held and lows[key] > 1.0 for key, held in holm(p).items()}

    @property
    def improved(self) -> bool:
        return bool(self.table) or self.won.get("general", False)

    @cached_property
    def served(self) -> Mapping[str, int]:
        """Per workload the trial whose win is proven there."""
        cells = self.run.choice.cells if self.run.choice else {}
        return {workload: number for workload, number in cells.items() if self.won.get((number, workload))}

    @cached_property
    def table(self) -> list[Row]:
        """Ranges between proven points; where neighbours differ, the split stands at their geometric mean."""
        groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for workload in self.run.begin["workloads"]:
            key = (tuple(workload["setting"]["types"].items()), tuple(workload["exact"].items()))
            groups.setdefault(key, []).append(workload)
        return [
            row for (types, dims), members in groups.items() for row in self._rows(dict(types), dict(dims), members)
        ]

    def _rows(
        self, types: Mapping[str, str], dims: Mapping[str, int], members: Sequence[Mapping[str, Any]]
    ) -> list[Row]:
        ranged = members[0]["ranged"]["name"]
        whens = {t["name"]: t["when"] for t in self.run.begin["templates"]}
        alone = self._alone(members) if self.run.begin["batch_invariant"] else None
        spans: list[Span] = [] if alone is None else [(None, None, alone)]
        if not self.run.begin["batch_invariant"]:
            spans = _spans(
                {point: self._at(members, point) for point in sorted({m["ranged"]["value"] for m in members})}
            )
        rows = []
        for low, high, number in spans:
            template = self.run.trial(number).template
            rows.append(Row(types, dims, ranged, low, high, whens[template], number))
        return rows

    def _at(self, members: Sequence[Mapping[str, Any]], point: int) -> int | None:
        """Who serves a point. Workloads that dispatch cannot tell apart have to agree."""
        found = {self.served.get(m["name"]) for m in members if m["ranged"]["value"] == point}
        return found.pop() if len(found) == 1 else None

    def _alone(self, members: Sequence[Mapping[str, Any]]) -> int | None:
        """Who serves every point, if it is one for all and loses nowhere."""
        cells = self.run.choice.cells if self.run.choice else {}
        found = {cells.get(m["name"]) for m in members}
        number = found.pop() if len(found) == 1 else None
        places = [(number, m["name"]) for m in members]
        held = [self.outcomes.get(place) for place in places]
        won = [one and replace(one, won=self.won.get(place, False)) for one, place in zip(held, places, strict=True)]
        return number if number is not None and stands_alone(won) else None

    @property
    def reason(self) -> str:
        """In one line, what was found and why it ended there."""
        run = self.run
        if not run.stopped:
            return "the search has not ended"
        if not run.trials:
            return f"nothing was tried: {run.stopped}"
        if not any(t.measured for t in run.trials):
            listed = ", ".join(f"{count} {status}" for status, count in run.by_status().items())
            return f"no configuration was right and measured: {listed}"
        if not self.proven:
            return run.ended or "the play-off is not finished"
        if self.improved:
            return run.stopped
        return f"no improvement found: no speedup of more than {MINIMUM_EFFECT:.0%} could be proven ({run.stopped})"

    # -- as data --

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        run = self.run
        opponent = run.opponent
        general = self.general
        return {
            "run": str(run.folder), "task": run.begin["task"], "device": run.device,
            "baseline": {"name": opponent.name, "time_us": dict(opponent.time_us)} if opponent else None,
            "general": None if general is None else {
                "template": general.template, "config": dict(general.config), "trial": general.number,
                "speedup": speedup_fields(self.general_ratio, self.proven),
            },
            "table": [row.fields(run) for row in self.table], "fallback": opponent.name if opponent else None,
            "cells": self._cells(), "improved": self.improved, "proven": self.proven, "reason": self.reason,
            "trials": {"total": len(run.trials), "by_status": run.by_status()},
            "space": {
                "cartesian": sum(t["cartesian"] for t in run.begin["templates"]),
                "legal": sum(t["legal"] for t in run.begin["templates"]),
            },
            "outlook": outlook(run.trials, list(run.weights)), "state": run.state,
            "model": {"calls": 0, "input_tokens": 0, "output_tokens": 0},
            "seconds": {"total": round(run.seconds, 1), "compile": round(run.compile_s, 1), "device": round(run.device_s, 1)},
        }  # fmt: skip

    def _cells(self) -> list[dict[str, Any]]:
        """Per workload what was chosen for it; where no win is proven the speedup is told, and the baseline serves."""
        run = self.run
        chosen = dict(run.choice.cells) if run.choice else {}
        if not chosen and self.general is not None and not self.proven:
            chosen = dict.fromkeys(self.general.cells, self.general.number)
        return [self._cell(w, chosen.get(w["name"])) for w in run.begin["workloads"]]

    def _cell(self, workload: Mapping[str, Any], number: int | None) -> dict[str, Any]:
        name = workload["name"]
        base = self.run.opponent.time_us.get(name) if self.run.opponent else None
        cell: dict[str, Any] = {
            "workload": name, "dims": workload["dims"], "types": workload["types"], "template": None, "config": None,
            "trial": None, "time_us": None, "baseline_us": base, "speedup": None, "target_fraction": None, "won": False,
            "reason": "",
        }  # fmt: skip
        if number is None:
            return cell | {"reason": "not served: the baseline stays"} if self.general is not None else cell
        trial = self.run.trial(number)
        outcome = self.outcomes.get((number, name))
        seen = trial.cells.get(name)
        cell |= {"template": trial.template, "config": dict(trial.config), "trial": number}
        if outcome is None:
            us = seen.timing.time_us if seen and seen.timing else None
            ratio = Ratio(base / us, 0.0, math.inf) if base and us else None
            return cell | {"time_us": us, "speedup": speedup_fields(ratio, False),
                           "target_fraction": seen.target_fraction if seen else None}  # fmt: skip
        if outcome.reason:
            return cell | {"reason": outcome.reason}
        target = seen.target_fraction * seen.timing.time_us if seen and seen.timing and seen.target_fraction else None
        us = outcome.challenger_us
        return cell | {
            "time_us": us, "baseline_us": outcome.baseline_us, "speedup": speedup_fields(outcome.ratio, True),
            "target_fraction": target / us if target and us else None, "won": self.won.get((number, name), False),
        }  # fmt: skip


def stands_alone(cells: Sequence[Outcome | None]) -> bool:
    """Whether one kernel may serve everything (`batch_invariant`): it was played everywhere, lost nowhere, won somewhere."""
    played = [one for one in cells if one is not None and not one.reason]
    return len(played) == len(cells) and not any(one.lost for one in played) and any(one.won for one in played)


def speedup_fields(ratio: Ratio | None, proven: bool) -> dict[str, Any] | None:
    if ratio is None:
        return None
    known = proven and ratio.processes > 1
    return {"ratio": ratio.ratio, "low": ratio.low if known else None, "high": ratio.high if known else None}


def _spans(points: Mapping[int, int | None]) -> list[Span]:
    """From what serves each measured point to ranges of whole numbers that do not overlap."""
    spans: list[Span] = []
    ordered = list(points.items())
    for index, (point, number) in enumerate(ordered):
        if number is None:
            continue
        before = ordered[index - 1] if index else None
        after = ordered[index + 1] if index + 1 < len(ordered) else None
        low = point if before is None else math.isqrt(before[0] * point) + 1
        high = point if after is None else math.isqrt(point * after[0])
        if spans and before is not None and before[1] == number:
            spans[-1] = (spans[-1][0], high, number)
        else:
            spans.append((low, high, number))
    return spans
