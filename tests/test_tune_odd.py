"""Searches of odd tasks on a real device: what only some shapes ask for, what dies or disagrees at the last step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scale import NAIVE, TASK, TUNED, measure_little, write
from tunesmith import arena, journal, runs
from tunesmith.campaign import Order, _workload
from tunesmith.errors import UsageError
from tunesmith.journal import read_events
from tunesmith.mutants import Mutant
from tunesmith.run import Run
from tunesmith.task import Input, Output, Task, Workload, dynamic, static

pytestmark = pytest.mark.opencl
FREE = TUNED.replace('"rows of eight" = "T % 8 == 0 or ITEMS < 8"', '"any" = "BLOCK > 0"')


@pytest.fixture(autouse=True)
def little(opencl_device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    measure_little(monkeypatch)


def search(place: Path, *, budget: str = "4trials", strategy: str = "exhaustive", **texts: str) -> dict[str, Any]:
    order = Order(
        write(place / "scale", **texts), device="opencl:0", strategy=strategy, budget=(budget,), run=place / "run"
    )
    return runs.search(order, quiet=True)


def events(place: Path, *kinds: str) -> list[dict[str, Any]]:
    return [event for event in read_events(place / "run") if event["event"] in kinds]


def test_what_is_asked_is_what_is_tried(tmp_path: Path) -> None:
    """A parameter whose `when` names a static dim is as active for the trial as it is for the space."""
    search(
        tmp_path, tuned=FREE.replace("tune: 1, 4, 8", "tune: 1, 4, 8; when d > 100").replace("tune: 0, 1;", "tune: 0;")
    )
    asked = {e["number"]: e["config"] for e in events(tmp_path, "ask")}
    tried = {e["number"]: e["config"] for e in events(tmp_path, "trial")}
    assert tried == asked
    assert len({config["ITEMS"] for config in tried.values()}) > 1


def test_a_baseline_that_serves_only_some_workloads_is_no_opponent(tmp_path: Path) -> None:
    part = NAIVE.replace('args = ["x", "out", "T"]', 'args = ["x", "out", "T"]\n[require]\n"small" = "T <= 64"')
    write(tmp_path / "scale")
    (tmp_path / "scale" / "baselines" / "part.cl").write_text(part.replace("r < 4", "r < 1").replace("r < 3", "r < 0"))
    order = Order(tmp_path / "scale", device="opencl:0", budget=("2trials",), run=tmp_path / "run")
    assert runs.search(order, quiet=True)["baseline"]["name"] == "naive"
    told = {e["name"]: e for e in events(tmp_path, "baseline")}
    assert (told["part"]["status"], told["part"]["reason"]) == ("illegal", "it does not serve large")
    with pytest.raises(UsageError, match="--baseline part is not correct: part: it does not serve large"):
        runs.search(Order(tmp_path / "scale", device="opencl:0", baseline="part", run=tmp_path / "other"), quiet=True)


def test_an_infinite_error_is_a_verdict_like_any(tmp_path: Path) -> None:
    tuned = FREE.replace("out[i] = 2 * x[i] + 1", "out[i] = x[i] == 0 ? NAN : 2 * x[i] + 1").replace(
        "tune: 0, 1;", "tune: 0;"
    )
    answer = search(tmp_path, tuned=tuned)  # zeros are drawn when it is verified
    assert (answer["improved"], answer["table"]) == (False, [])
    assert any(e["status"] == "wrong" for e in events(tmp_path, "verify"))
    assert json.dumps(runs.resume(tmp_path / "run", quiet=True)) == json.dumps(answer)


def test_a_held_out_shape_that_does_not_launch_says_nothing_of_the_others(tmp_path: Path) -> None:
    tuned = FREE.replace('block = ["BLOCK"]', 'block = ["BLOCK if T > 17 else 100000"]').replace(
        "tune: 0, 1;", "tune: 0;"
    )
    assert search(tmp_path, tuned=tuned)["improved"]
    assert {e["workload"] for e in events(tmp_path, "verify")} == {"small", "large"}


def test_same_bits_as_the_baseline(tmp_path: Path) -> None:
    same = TASK.replace('Output("out", "f32[T, d]")', 'Output("out", "f32[T, d]", tolerance="same_bits")')
    tuned = FREE.replace("tune: 0, 1; the last element is left out", "tune: 0, 1; bits").replace(
        "if (i < T * DIM_D - WRONG) out[i] = 2 * x[i] + 1;",
        "if (i < T * DIM_D) out[i] = WRONG ? nextafter(2 * x[i] + 1, INFINITY) : 2 * x[i] + 1;",
    )
    answer = search(tmp_path, task=same, tuned=tuned, budget="12trials")
    assert answer["improved"]
    assert answer["general"]["config"]["WRONG"] == 0


def test_batch_invariant_rows_have_no_conditions(tmp_path: Path) -> None:
    invariant = TASK.replace('rows="T"', 'rows="T", batch_invariant=True')
    with pytest.raises(UsageError, match=r"tuned may not be chosen for every size \(rows of eight\)"):
        search(tmp_path / "refused", task=invariant)
    answer = search(tmp_path / "free", task=invariant, tuned=FREE)
    assert [(row["range"], row["when"]) for row in answer["table"]] == [({"T": [None, None]}, None)]


def test_a_check_that_is_too_weak_stops_a_resumed_run_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena.Live, "mutants", lambda self: [Mutant("all zeros", "out", False)])
    with pytest.raises(UsageError, match="too weak"):
        search(tmp_path)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="too weak"):
        runs.resume(tmp_path / "run", quiet=True)


def test_a_result_that_was_not_written_is_when_its_run_is_resumed(tmp_path: Path) -> None:
    import shutil

    answer = search(tmp_path)
    shutil.rmtree(tmp_path / "run" / "result")
    assert json.dumps(runs.resume(tmp_path / "run", quiet=True)) == json.dumps(answer)
    assert (tmp_path / "run" / "result" / "general.cl").exists()


def test_a_run_inside_of_its_own_task_holds_no_copy_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "scale")
    monkeypatch.chdir(tmp_path / "scale")
    order = Order(Path("task.py"), device="opencl:0", budget=("1trials",), run=Path("out"))
    assert runs.search(order, quiet=True)["trials"]["total"] == 1
    assert not (tmp_path / "scale" / "out" / "task" / "out").exists()


def test_a_strategy_that_fails_is_told(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        "import numpy as np\nclass Mine:\n    def __init__(self, space, rng):\n        self.left = iter(space)\n"
        "    def ask(self):\n        return {k: np.int64(v) for k, v in next(self.left).items()}\n"
        "    def tell(self, trial):\n        if trial.number == 2:\n            raise RuntimeError('on purpose')\n"
    )
    with pytest.raises(UsageError, match=r"the strategy mine.py failed: RuntimeError: on purpose"):
        search(tmp_path, strategy=str(own))
    assert len(Run.read(tmp_path / "run").trials) == 2  # numbers of any library are numbers


def test_a_strategy_is_told_what_the_journal_holds(tmp_path: Path) -> None:
    """Else one that reads more could not be brought back to where it was."""
    own = tmp_path / "mine.py"
    own.write_text(
        "class Mine:\n    def __init__(self, space, rng):\n        self.left, self.heard = list(space), []\n"
        "    def ask(self):\n        return self.left.pop(sum(self.heard) % len(self.left)) if self.left else None\n"
        "    def tell(self, trial):\n"
        "        self.heard.append(sum(len(c.timing.samples_us) for c in trial.cells.values() if c.timing))\n"
        "        self.heard.append(int(1e9 * sum(trial.seconds.values())))\n"
    )
    search(tmp_path, strategy=str(own), budget="6trials")
    lines = (tmp_path / "run" / journal.NAME).read_text().splitlines(keepends=True)
    cut = max(i for i, line in enumerate(lines) if '"event":"trial"' in line)
    (tmp_path / "run" / journal.NAME).write_text("".join(lines[: cut + 1]))
    assert runs.resume(tmp_path / "run", quiet=True)["trials"]["total"] == 6


def test_a_refused_search_leaves_another_runs_files_alone(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text("class Mine:\n    def ask(self): pass\n    def tell(self, trial): pass\n")
    recording = Path(__file__).parents[1] / "benchmarks" / "recorded" / "pnpoly_3090.json.gz"
    order = Order(None, device=f"recorded:{recording}", strategy=str(own), budget=("1trials",), run=tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / journal.NAME).write_text('{"event":"begin","format":1}\n')
    (tmp_path / "run" / "mine.py").write_text("as it was")
    with pytest.raises(UsageError, match="holds a run already"):
        runs.search(order, quiet=True)
    assert (tmp_path / "run" / "mine.py").read_text() == "as it was"


def test_dims_that_the_range_does_not_name_are_exact() -> None:
    arguments = [Input("x", "f32[B, L, d]"), Output("o", "f32[B, L, d]")]
    dims = {"B": dynamic, "L": dynamic, "d": static}
    workloads = [Workload("a", B=2, L=128, d=64)]
    task = Task(name="t", dims=dims, arguments=arguments, workloads=workloads, ranged="L")
    assert _workload(task, workloads[0])["exact"] == {"d": 64, "B": 2}
    whole = Task(name="t", dims=dims, arguments=arguments, workloads=workloads, ranged="B*L")
    told = _workload(whole, workloads[0])
    assert (told["exact"], told["ranged"]) == ({"d": 64}, {"name": "B*L", "value": 256})
