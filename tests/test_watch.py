"""What a person is told while a search goes on: the events worth a line, once each, and nothing where it should be quiet."""

from __future__ import annotations

from typing import Any

import pytest

from test_result import begin
from tunesmith.run import Run
from tunesmith.watch import Watch


def trial(run: Run, number: int, score: float) -> None:
    run.emit("ask", number=number, template="k", config={"A": number})
    cells = {"w0": {"status": "ok", "time_us": 100 / score, "low_us": 1.0, "high_us": 2.0, "target_fraction": 0.5}}
    run.emit("trial", number=number, template="k", config={"A": number}, status="ok", score=score, cells=cells)


def begun(**changes: Any) -> Run:
    run = Run()
    run.emit("begin", **{**begin([16]), "budget": ["10trials"], **changes})
    run.emit("baseline", name="base", kind="baseline", status="ok", time_us={"w0": 100.0})
    return run


def test_each_rise_of_the_best_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    run = begun()
    with Watch(run):
        run.emit("baseline", name="other", kind="callable", status="illegal", reason="not here: torch", time_us={})
        run.emit("opponent", name="base")
        for number, score in enumerate((1.0, 2.0, 1.5, 2.001, 3.0), 1):
            trial(run, number, score)
        run.emit("stop", reason="enough")
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[:2] == ["baseline  other: not here: torch", "baseline  base: w0 100.00 µs"]
    told = [line.split("trial ")[1] for line in lines if "  trial " in line]
    assert told == ["1: 1.000x  the default", "2: 2.000x  A=2", "5: 3.000x  A=5"]
    assert lines[-1].startswith("search    5 trials in ")
    assert lines[-1].endswith("s; enough")


def test_a_resumed_search_does_not_tell_an_old_best_anew(capsys: pytest.CaptureFixture[str]) -> None:
    run = begun()
    run.emit("opponent", name="base")
    trial(run, 1, 2.0)
    with Watch(run):
        trial(run, 2, 1.5)
    assert "trial 2" not in capsys.readouterr().err


def test_quiet_is_quiet_and_nobody_listens_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    run = begun()
    with Watch(run, quiet=True):
        run.emit("opponent", name="base")
        trial(run, 1, 2.0)
    assert capsys.readouterr().err == ""
    assert run.listeners == []


def test_the_picture_tells_the_phase_and_the_time_left() -> None:
    run = begun()
    watch = Watch(run)
    assert "measuring the baselines" in watch._picture().plain
    run.emit("opponent", name="base")
    for number in range(1, 6):
        trial(run, number, 2.0)
    text = watch._picture().plain
    assert "searching: 5 trials, 0 under way, last moved at trial 1" in text
    assert "w0: 100.00 -> 50.00 µs, 0.50 of the target" in text
    assert "s left" in text
    run.emit("stop", reason="enough")
    assert "measuring the finalists again: 0 of " in watch._picture().plain
