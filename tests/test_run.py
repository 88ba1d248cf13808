"""A run's journal: what survives a kill, a torn line, a full disk, a second process; and that its result is derived alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from killed import RECORDING, outcome
from tunesmith import journal, runs
from tunesmith.build import Kernel
from tunesmith.campaign import Order
from tunesmith.errors import Interrupted, UsageError
from tunesmith.journal import Journal, read_events, trial_fields, trial_from
from tunesmith.result import Result
from tunesmith.run import Run
from tunesmith.task import Setting
from tunesmith.trial import Cell, Status, Timing, Trial

HERE = Path(__file__).parent


def search(folder: Path, *budget: str, **changes: Any) -> dict[str, Any]:
    fields = {"device": f"recorded:{RECORDING}", "strategy": "random", "budget": budget or ("30trials",), "run": folder}
    return runs.search(Order(None, **{**fields, **changes}), quiet=True)


# --- kills -------------------------------------------------------------------------------------------------------------


def test_a_hundred_kills_change_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "killed.py"), str(tmp_path), "100", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["whole"]["trials"]["total"] == 120
    assert all(one["same"] for one in found["killed"])
    assert sum(one["kills"] for one in found["killed"]) >= 60


def test_what_was_under_way_is_tried_again_under_its_number(tmp_path: Path) -> None:
    search(tmp_path / "whole")
    lines = (tmp_path / "whole" / journal.NAME).read_bytes().splitlines(keepends=True)
    asks = [i for i, line in enumerate(lines) if b'"event":"ask"' in line]
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / journal.NAME).write_bytes(b"".join(lines[: asks[9] + 1]))
    under_way = set(Run.read(cut).in_flight)
    assert under_way
    runs.resume(cut, quiet=True)
    told = [event["number"] for event in read_events(cut) if event["event"] == "trial"]
    assert sorted(told) == list(range(1, 31))
    assert outcome(cut) == outcome(tmp_path / "whole")


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    search(tmp_path / "whole")
    whole = (tmp_path / "whole" / journal.NAME).read_bytes()
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / journal.NAME).write_bytes(whole[: len(whole) * 2 // 3])
    assert whole[len(whole) * 2 // 3 - 1 : len(whole) * 2 // 3] != b"\n"
    before = len(Run.read(torn).trials)
    assert 0 < before < 30
    runs.resume(torn, quiet=True)
    assert outcome(torn) == outcome(tmp_path / "whole")


def test_a_strategy_that_asks_for_something_else_is_noticed(tmp_path: Path) -> None:
    search(tmp_path)
    lines = (tmp_path / journal.NAME).read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["event"] not in ("stop", "end")]
    begin = json.loads(kept[0]) | {"seed": 5, "budget": ["40trials"]}
    (tmp_path / journal.NAME).write_text("\n".join([json.dumps(begin), *kept[1:]]) + "\n")
    with pytest.raises(UsageError, match="asks for something else than it did"):
        runs.resume(tmp_path, quiet=True)


def test_an_interruption_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emit, seen = Run.emit, []

    def interrupted(self: Run, event: str, **fields: Any) -> None:
        emit(self, event, **fields)
        seen.append(event)
        if seen.count("trial") == 10:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "emit", interrupted)
    with pytest.raises(Interrupted, match="interrupted after 10 trials; best so far") as stopped:
        search(tmp_path / "one")
    assert stopped.value.hint == f"tunesmith resume {tmp_path / 'one'}"
    monkeypatch.undo()
    search(tmp_path / "whole")
    runs.resume(tmp_path / "one", quiet=True)
    assert outcome(tmp_path / "one") == outcome(tmp_path / "whole")


# --- files that resist -------------------------------------------------------------------------------------------------


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    search(tmp_path)
    with Journal(tmp_path):
        code = f"from tunesmith.journal import Journal; from pathlib import Path; Journal(Path({str(tmp_path)!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "is being worked on by another process (process " in done.stderr
    assert outcome(tmp_path)["trials"]["total"] == 30  # it can be read all the while
    Journal(tmp_path).close()


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Journal(tmp_path)
    held.write({"event": "begin"})
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, held._file.fileno())
    with pytest.raises(UsageError, match="the disk is full") as told:
        held.write({"event": "ask"})
    assert told.value.hint.endswith(f"tunesmith resume {tmp_path}")
    os.close(full)
    assert [e["event"] for e in read_events(tmp_path)] == ["begin"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0o500)
    with pytest.raises(UsageError, match="cannot be made: Permission denied"):
        search(tmp_path / "shut" / "run")


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be made") as told:
        search(tmp_path / "file" / "run")
    assert told.value.hint == "--run DIR chooses a folder"


def test_a_folder_holds_one_run(tmp_path: Path) -> None:
    search(tmp_path)
    with pytest.raises(UsageError, match="holds a run already"):
        search(tmp_path)


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no run"):
        runs.replay(tmp_path)
    (tmp_path / journal.NAME).write_text('{"event":"begin","format":1}\nnot json\n{"event":"stop"}\n')
    with pytest.raises(UsageError, match="jsonl:2 is no event"):
        runs.replay(tmp_path)


def test_an_event_from_elsewhere_is_told(tmp_path: Path) -> None:
    (tmp_path / journal.NAME).write_text(json.dumps({"event": "begin", "format": 1}) + '\n{"event":"dance"}\n')
    with pytest.raises(UsageError, match="an event 'dance' that this version does not know"):
        Run.read(tmp_path)
    (tmp_path / journal.NAME).write_text('{"event":"begin","format":99}\n')
    with pytest.raises(UsageError, match="format 99; this version reads 1"):
        Run.read(tmp_path)


# --- what is derived ---------------------------------------------------------------------------------------------------


def test_replay_gives_the_same_bytes(tmp_path: Path) -> None:
    answer = search(tmp_path)
    assert json.dumps(runs.replay(tmp_path)) == json.dumps(answer)
    assert json.dumps(runs.resume(tmp_path, quiet=True)) == json.dumps(answer)  # a run that is done stays as it is


def test_a_recorded_run_claims_nothing(tmp_path: Path) -> None:
    answer = search(tmp_path / "run")
    assert (answer["improved"], answer["proven"], answer["table"]) == (False, False, [])
    assert answer["general"]["speedup"]["low"] is None
    assert "nothing is proven" in answer["reason"]
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / journal.NAME).write_text("not json\n")
    listed = {Path(one["run"]).name: one for one in runs.listed(tmp_path)["runs"]}
    assert (listed["run"]["state"], listed["run"]["trials"]) == ("done", 30)
    assert "is no event" in listed["odd"]["reason"]


def test_budgets_end_a_search(tmp_path: Path) -> None:
    answer = search(tmp_path / "a", "50trials", "1h")
    assert answer["trials"]["total"] == 50
    device = search(tmp_path / "b", "1device-s")
    assert device["seconds"]["device"] >= 1.0
    assert Run.read(tmp_path / "b").stopped == "the budget of 1 seconds of the device is spent"


def test_an_exhaustive_search_ends_by_itself(tmp_path: Path) -> None:
    small = tmp_path / "small.json"
    names = {"tune_params_keys": ["A"], "tune_params": {"A": [1, 2, 3]}}
    cache = {str(a): {"A": a, "time": float(a)} for a in (1, 2, 3)}
    small.write_text(json.dumps({"kernel_name": "k", **names, "cache": cache}))
    answer = search(tmp_path / "run", "1h", device=f"recorded:{small}", strategy="exhaustive")
    assert answer["trials"]["total"] == 3
    assert answer["general"]["config"] == {"A": 1}
    assert Run.read(tmp_path / "run").stopped == "all 3 legal configurations were tried"


def test_a_trial_comes_back_as_it_was() -> None:
    setting = Setting((("d", 8),), (("io", "f32"),))
    trial = Trial(
        4, "k", {"BLOCK": 64, "LOAD": "ldg"}, Status.BEHIND, "slow", "log", {setting: (Kernel("k", "_k", 32, 8, 1024, 99),)},
        {"w": Cell("w", Status.BEHIND, "slow", Timing(2.5, 2.0, 3.0), 0.5, 0.25, 0.9), "v": Cell("v")},
        bound=0.7, seconds={"check": 0.25}, identity="abc",
    )  # fmt: skip
    again = trial_from(json.loads(json.dumps(trial_fields(trial))))
    assert again == trial


def test_a_strategy_of_the_users_own_travels_with_the_run(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text((HERE.parent / "src" / "tunesmith" / "search" / "random.py").read_text())
    search(tmp_path / "run", strategy=str(own))
    own.write_text("gone")
    lines = (tmp_path / "run" / journal.NAME).read_text().splitlines(keepends=True)
    (tmp_path / "run" / journal.NAME).write_text("".join(lines[:20]))
    assert runs.resume(tmp_path / "run", quiet=True)["trials"]["total"] == 30


def test_a_result_of_a_run_that_goes_on_says_so(tmp_path: Path) -> None:
    search(tmp_path)
    lines = (tmp_path / journal.NAME).read_text().splitlines(keepends=True)
    (tmp_path / journal.NAME).write_text("".join(lines[:20]))
    answer = Result(Run.read(tmp_path)).as_json()
    assert (answer["state"], answer["reason"]) == ("searching", "the search has not ended")
