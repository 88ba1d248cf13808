"""Whole searches on a real device: found, verified, proven, handed over; and gone on with after each step was cut short."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from scale import NAIVE, TASK, TUNED, TUNED_CU, measure_little, write
from tunesmith import arena, journal, runs
from tunesmith.campaign import Order
from tunesmith.errors import UsageError
from tunesmith.journal import read_events
from tunesmith.mutants import Mutant
from tunesmith.result import Result
from tunesmith.run import Run
from tunesmith.template import Template

BUDGET = ("12trials",)
DOCUMENTED = Path(__file__).parents[1] / "docs" / "journal.md"

pytestmark = pytest.mark.opencl


@pytest.fixture
def task(tmp_path: Path, opencl_device: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    measure_little(monkeypatch)
    return write(tmp_path / "scale")


@pytest.fixture
def searched(task: Path, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    run = tmp_path / "run"
    order = Order(task, device="opencl:0", strategy="exhaustive", budget=BUDGET, run=run, max_kernels=1)
    return run, runs.search(order, quiet=True)


def test_a_search_finds_verifies_and_proves(
    searched: tuple[Path, dict[str, Any]], tmp_path: Path, command: Command
) -> None:
    run, answer = searched
    assert answer["improved"]
    assert answer["proven"]
    assert answer["baseline"]["name"] == "naive"
    assert answer["general"]["config"]["WRONG"] == 0
    assert answer["general"]["speedup"]["low"] > 1.01
    assert answer["trials"]["total"] == 12
    assert answer["trials"]["by_status"]["wrong"] >= 3
    (row,) = answer["table"]
    assert (row["range"], row["dims"], row["when"]) == ({"T": [64, 512]}, {"d": 256}, "T % 8 == 0 or ITEMS < 8")
    verified = {(e["trial"], e["workload"]) for e in read_events(run) if e["event"] == "verify"}
    general = answer["general"]["trial"]
    assert {(general, "small"), (general, "large")} <= verified
    if answer["general"]["config"]["ITEMS"] < 8:  # the held-out workload is one that its template serves
        assert (general, "prime") in verified
    assert json.dumps(runs.replay(run)) == json.dumps(answer)
    _every_event_is_documented(run)
    _the_result_is_of_use(run / "result", answer)
    _and_is_proven_again(run / "result", command)
    _and_is_gone_on_with(run, answer, tmp_path)


def _every_event_is_documented(run: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|(.*)\|$", DOCUMENTED.read_text(), re.MULTILINE)
    listed = {event: {"event", "at", *re.findall(r"`(\w+)`", keys)} for event, keys in rows}
    seen = list(read_events(run))
    assert {e["event"] for e in seen} == set(listed)
    for event in seen:
        assert set(event) <= listed[event["event"]], event["event"]


def _the_result_is_of_use(folder: Path, answer: dict[str, Any]) -> None:
    """The tuned source is a template's file with other values, and compiles alone."""
    table = json.loads((folder / "table.json").read_text())
    assert table["source"] == "general.cl"
    assert table["table"][0]["source"] == "row-1.cl"
    assert table["measured_on"]["device"]["name"]
    for name in ("general.cl", "row-1.cl"):
        tuned = Template.load(folder / name)
        assert tuned.default == answer["general"]["config"]
        assert tuned.render({"BLOCK": 64, "ITEMS": 1, "WRONG": 0}) == TUNED
    proof = json.loads((folder / "proof.json").read_text())
    assert len(proof["play_off"][0]["log_ratios"]) == 3
    assert (folder / "task" / "task.py").read_text() == TASK
    assert (folder / "task" / "baselines" / "naive.cl").exists()


def _and_is_proven_again(result: Path, command: Command) -> None:
    """From the folder alone; and a source that was spoilt since does not hold."""
    code, out, _ = command("prove", str(result), "--device", "opencl:0", "--json")
    answer = json.loads(out)
    assert (code, answer["holds"], answer["stale"]) == (0, True, [])
    assert {cell["workload"] for row in answer["rows"] for cell in row["cells"]} == {"small", "large"}
    spoilt = result.parent / "spoilt"
    shutil.copytree(result, spoilt)
    source = (spoilt / "row-1.cl").read_text()
    (spoilt / "row-1.cl").write_text(source.replace("2 * x[i] + 1", "2 * x[i]"))
    (spoilt / "task" / "baselines" / "naive.cl").write_text(NAIVE + "\n")
    code, out, _ = command("prove", str(spoilt), "--device", "opencl:0")
    assert code == 1
    assert "the table does not hold here in full" in out
    assert "the task or a baseline was changed since" in out
    assert command("prove", str(result.parent))[0] == 2


def _and_is_gone_on_with(run: Path, answer: dict[str, Any], tmp_path: Path) -> None:
    """From right after each kind of event: what the journal holds is not done again."""
    lines = (run / journal.NAME).read_text().splitlines(keepends=True)
    last = {json.loads(line)["event"]: i for i, line in enumerate(lines)}
    for event in ("stop", "choose", "play"):
        cut = tmp_path / f"cut-{event}"
        shutil.copytree(run, cut)
        kept = lines[: last[event] + 1]
        if event == "play":
            kept = kept[:-1]  # in the middle of the play-off
        (cut / journal.NAME).write_text("".join(kept))
        again = runs.resume(cut, quiet=True)
        assert again["trials"]["total"] == 12
        assert again["improved"]
        events = [e["event"] for e in read_events(cut)]
        assert events[: len(kept)] == [json.loads(line)["event"] for line in kept]
        assert events.count("tester") == 1
        assert events.count("opponent") == 1
        assert events.count("play") == 3
        assert len(Run.read(cut).verified) == events.count("verify")


def test_an_interrupted_search_goes_on_with_what_was_under_way(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = Order(task, device="opencl:0", strategy="random", budget=BUDGET, run=tmp_path / "run")
    emit = Run.emit

    def interrupted(self: Run, event: str, **fields: Any) -> None:
        emit(self, event, **fields)
        if event == "trial" and len(self.trials) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "emit", interrupted)
    with pytest.raises(Exception, match="interrupted after 3 trials"):
        runs.search(order, quiet=True)
    monkeypatch.setattr(Run, "emit", emit)
    flying = dict(Run.read(tmp_path / "run").in_flight)
    assert flying
    runs.resume(tmp_path / "run", quiet=True)
    run = Run.read(tmp_path / "run")
    assert sorted(t.number for t in run.trials) == list(range(1, 13))
    assert all(run.trial(n).config == config for n, (_, config) in flying.items())
    assert Result(run).improved


def test_a_finalist_that_does_not_stand_up_is_replaced(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = arena.Live.verify
    fallen: list[Any] = []

    def strict(self: arena.Live, entry: Any, workload: str) -> Any:
        checked = verify(self, entry, workload)
        if not fallen or fallen[0] == entry:
            fallen.append(entry)
            return type(checked)(workload, "outliers", "wrong", "on purpose")
        return checked

    monkeypatch.setattr(arena.Live, "verify", strict)
    order = Order(task, device="opencl:0", strategy="exhaustive", budget=BUDGET, run=tmp_path / "run")
    answer = runs.search(order, quiet=True)
    assert answer["improved"]
    assert answer["general"]["config"] != fallen[0][1]
    refused = Run.read(tmp_path / "run").refused()
    assert len(refused) == 1
    assert answer["general"]["trial"] not in refused


def test_a_check_that_is_too_weak_stops_before_the_search(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena.Live, "mutants", lambda self: [Mutant("all zeros", "out", False)])
    with pytest.raises(UsageError, match=r"too weak for this task: it accepts all zeros \(out\)"):
        runs.search(Order(task, device="opencl:0", run=tmp_path / "run"), quiet=True)


def test_a_task_whose_baseline_is_wrong_is_told(task: Path, tmp_path: Path) -> None:
    (task / "baselines" / "naive.cl").write_text(NAIVE.replace("2 * x[i] + 1", "2 * x[i]"))
    with pytest.raises(UsageError, match="no baseline is correct on every workload: naive: "):
        runs.search(Order(task, device="opencl:0", budget=("1trials",), run=tmp_path / "run"), quiet=True)


def test_no_improvement_is_found_where_there_is_none(task: Path, tmp_path: Path) -> None:
    """A template whose parameters change nothing, against itself."""
    same = re.sub(r"// tune:.*|\[require\]\n.*", "", TUNED).replace("BLOCK*ITEMS", "64").replace('"BLOCK"', '"64"')
    (task / "baselines" / "naive.cl").write_text(same)
    (task / "templates" / "tuned.cl").write_text(same + "#define NOTHING 0 // tune: 0, 1, 2\n")
    answer = runs.search(Order(task, device="opencl:0", budget=("3trials",), run=tmp_path / "run"), quiet=True)
    assert not answer["improved"]
    assert answer["table"] == []
    assert answer["reason"].startswith("no improvement found")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--baseline", "other"], "--baseline other: no such baseline; known: naive"),
        (["nowhere.cl"], "no such file: nowhere.cl"),
        (["--budget", "soon"], "--budget 'soon' is no budget"),
        (["--budget", "8calls"], "--budget in calls: a search asks no model"),
        (["--strategy", "prayer"], "unknown strategy 'prayer'; known: annealing, default"),
        (["--strategy", "prayer.py"], "no such file: prayer.py"),
        (["--device", "cuda:0"], "cuda:0 does not open"),
    ],
)
def test_what_a_search_refuses(
    task: Path, tmp_path: Path, command: Command, arguments: list[str], message: str
) -> None:
    device = [] if "--device" in arguments else ["--device", "opencl:0"]
    code, out, err = command("search", str(task), *arguments, *device, "--run", str(tmp_path / "run"))
    assert code in (2, 3)
    assert out == ""
    assert f"error: {message}" in err
    assert "Traceback" not in err


def test_the_command_line_searches_lists_and_replays(task: Path, tmp_path: Path, command: Command) -> None:
    run = str(tmp_path / "runs" / "one")
    code, out, err = command("search", str(task), "--device", "opencl:0", "--budget", "6trials", "--run", run)
    assert code == 0
    assert out.startswith("improved: ")
    assert "baseline  naive: small " in err
    assert f"kept in   {run}" in out
    code, out, _ = command("runs", str(tmp_path / "runs"))
    assert code == 0
    assert "done" in out
    code, out, _ = command("replay", run, "--json")
    assert (code, json.loads(out)["improved"]) == (0, True)
    code, out, _ = command("show", run, "1")
    assert code == 0
    assert "trial 1 of tuned: ok" in out
    assert json.loads(command("show", run, "1", "--json")[1])["source"] == TUNED
    code, _, err = command("show", run, "99")
    assert (code, "has no trial 99" in err) == (2, True)
    assert json.loads(command("show", run, "--json")[1])["best"][0]["score"] > 1
    code, out, err = command("resume", str(tmp_path))
    assert (code, out) == (2, "")
    assert "is no run" in err


def test_on_a_null_device_nothing_is_proven(tmp_path: Path, task: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    (task / "templates" / "tuned.cu").write_text(TUNED_CU)
    (task / "baselines" / "naive.cu").write_text(TUNED_CU)
    order = Order(task, device="null:sm_90:invented", budget=("8trials",), strategy="random", run=tmp_path / "run")
    answer = runs.search(order, quiet=True)
    assert (answer["proven"], answer["improved"], answer["table"]) == (False, False, [])
    assert "runs no kernels" in answer["reason"]
    assert (tmp_path / "run" / "result" / "general.cu").exists()


def test_the_cache_is_told_and_cleared(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_CACHE", str(tmp_path))
    for name in ("builds", "calibration"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 1000)
    answer = json.loads(command("cache", "--json")[1])
    assert {name: part["bytes"] for name, part in answer["parts"].items()} == {"builds": 1000, "calibration": 1000}
    code, out, _ = command("cache", "--clear")
    assert code == 0
    assert "cleared" in out
    assert not (tmp_path / "builds").exists()
    assert (tmp_path / "calibration" / "file").exists()
