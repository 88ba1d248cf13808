"""From a run's events to a table: splits, fallbacks, claims that hold together, and nothing that was not proven."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tunesmith.handover import write_result
from tunesmith.result import Result
from tunesmith.run import Run


def begin(points: list[int], *, invariant: bool = False, exact: list[dict[str, int]] | None = None) -> dict[str, Any]:
    return {
        "format": 1, "task": "t", "version": "0", "task_digest": None, "device": "x", "seed": 0, "budget": [], "l2": None,
        "threads": None, "batch_invariant": invariant, "score": "speedup",
        "templates": [
            {"name": "k", "file": None, "digest": "", "cartesian": 10, "legal": 9, "when": "T % 8 == 0", "default": {"A": 1}}
        ],
        "workloads": [
            {"name": f"w{i}", "weight": 1.0, "dims": {"T": t, "d": 64}, "types": {"io": "f32"},
             "setting": {"dims": {"d": 64}, "types": {"io": "f32"}}, "exact": (exact or [{"d": 64}] * len(points))[i],
             "ranged": {"name": "T", "value": t}}
            for i, t in enumerate(points)
        ],
    }  # fmt: skip


def run_of(points: list[int], gains: dict[int, list[float]], cells: list[int], *, general: int = 1, spread: float = 0.001,
           **how: Any) -> Run:  # fmt: skip
    """A run that chose `cells` per point, where trial n is `gains[n][i]` times as fast as the baseline."""
    run = Run()
    run.emit("begin", **begin(points, **how))
    times = {f"w{i}": 100.0 for i in range(len(points))}
    run.emit("baseline", name="base", kind="baseline", status="ok", time_us=times)
    run.emit("opponent", name="base")
    for number in gains:
        run.emit("ask", number=number, template="k", config={"A": number})
        us = {
            f"w{i}": {"status": "ok", "time_us": 100 / g, "low_us": 1.0, "high_us": 2.0}
            for i, g in enumerate(gains[number])
        }
        run.emit("trial", number=number, template="k", config={"A": number}, status="ok", score=2.0, cells=us)
    run.emit("stop", reason="enough")
    run.emit("choose", general=general, cells={f"w{i}": n for i, n in enumerate(cells)})
    wanted = {(n, f"w{i}") for i, n in enumerate(cells)} | {(general, f"w{i}") for i in range(len(points))}
    for process in range(7):
        played = []
        for number, workload in sorted(wanted):
            gain = gains[number][int(workload[1:])] * math.exp(spread * (process - 3))
            played.append(
                {
                    "trial": number,
                    "workload": workload,
                    "baseline_us": 100.0,
                    "challenger_us": 100 / gain,
                    "ratio": gain,
                }
            )
        run.emit("play", process=process, cells=played)
    run.emit("end", reason="proven")
    return run


def ranges(run: Run) -> list[tuple[int | None, int | None, int]]:
    return [(row.low, row.high, row.trial) for row in Result(run).table]


def test_one_choice_holds_between_measured_points_and_not_beyond() -> None:
    run = run_of([16, 64, 4096], {1: [2.0, 2.0, 2.0]}, [1, 1, 1])
    assert ranges(run) == [(16, 4096, 1)]
    answer = Result(run).as_json()
    assert (answer["improved"], answer["fallback"], answer["reason"]) == (True, "base", "enough")
    assert answer["table"][0] == {
        "types": {"io": "f32"}, "dims": {"d": 64}, "range": {"T": [16, 4096]}, "when": "T % 8 == 0", "template": "k",
        "config": {"A": 1}, "trial": 1,
    }  # fmt: skip
    assert answer["general"]["speedup"]["ratio"] == pytest.approx(2.0)
    assert answer["general"]["speedup"]["low"] > 1.99


def test_where_neighbours_differ_the_split_is_at_their_geometric_mean() -> None:
    run = run_of([16, 64, 256], {1: [2.0, 2.0, 2.0], 2: [3.0, 1.0, 1.0]}, [2, 1, 1])
    assert ranges(run) == [(16, 32, 2), (33, 256, 1)]  # sqrt(16 * 64) = 32


def test_where_no_win_is_proven_the_baseline_serves() -> None:
    run = run_of([16, 64, 256], {1: [2.0, 1.0, 2.0]}, [1, 1, 1])
    assert ranges(run) == [(16, 32, 1), (129, 256, 1)]
    cells = {c["workload"]: c for c in Result(run).as_json()["cells"]}
    assert (cells["w0"]["won"], cells["w1"]["won"]) == (True, False)


def test_noise_is_no_win() -> None:
    run = run_of([16, 64], {1: [1.004, 1.02]}, [1, 1], spread=0.02)
    answer = Result(run).as_json()
    assert (answer["improved"], answer["table"]) == (False, [])
    assert answer["reason"].startswith("no improvement found")


def test_settings_have_rows_of_their_own() -> None:
    run = run_of(
        [16, 64, 16, 64], {1: [2.0, 2.0, 2.0, 1.0]}, [1] * 4, exact=[{"d": 64}, {"d": 64}, {"d": 128}, {"d": 128}]
    )
    rows = [(row.dims, row.low, row.high) for row in Result(run).table]
    assert rows == [({"d": 64}, 16, 64), ({"d": 128}, 16, 32)]


def test_workloads_that_dispatch_cannot_tell_apart_have_to_agree() -> None:
    run = run_of([16, 16, 64], {1: [2.0, 2.0, 2.0], 2: [3.0, 1.5, 1.0]}, [2, 1, 1])
    assert ranges(run) == [(33, 64, 1)]
    run = run_of([16, 16, 64], {1: [2.0, 1.0, 2.0]}, [1, 1, 1])
    assert ranges(run) == [(33, 64, 1)]


def test_batch_invariant_one_kernel_serves_everything_or_none_does() -> None:
    assert ranges(run_of([16, 64], {1: [2.0, 1.0]}, [1, 1], invariant=True)) == [(None, None, 1)]
    assert ranges(run_of([16, 64], {1: [2.0, 0.9]}, [1, 1], invariant=True)) == []
    assert ranges(run_of([16, 64], {1: [1.0, 1.0]}, [1, 1], invariant=True)) == []
    lost = Result(run_of([16, 64], {1: [2.0, 0.5]}, [1, 1], invariant=True)).as_json()
    assert (lost["improved"], lost["table"]) == (False, [])


def test_batch_invariant_an_arm_that_died_serves_nothing() -> None:
    run = run_of([16, 64], {1: [2.0, 2.0]}, [1, 1], invariant=True)
    run.plays[3][1, "w0"] = "it died"
    assert ranges(run) == []
    run.plays.clear()
    assert ranges(run) == []


def test_half_a_play_off_claims_nothing() -> None:
    run = run_of([16, 64], {1: [2.0, 2.0]}, [1, 1])
    run.ended = ""
    del run.plays[2:]
    answer = Result(run).as_json()
    assert (answer["proven"], answer["improved"], answer["table"]) == (False, False, [])
    assert answer["reason"] == "the play-off is not finished"


def test_nothing_that_is_written_is_infinite(tmp_path: Path) -> None:
    run = run_of([16, 64], {1: [2.0, 2.0]}, [1, 1])
    run.plays[3][1, "w0"] = "it died"
    json.dumps(Result(run).as_json(), allow_nan=False)
    write_result(Result(run), tmp_path / "result")
    cell = Result(run).as_json()["cells"][0]
    assert (cell["time_us"], cell["speedup"], cell["reason"]) == (None, None, "it died")


def test_a_budget_that_was_spent_before_anything_was_tried_is_told() -> None:
    run = Run()
    run.emit("begin", **begin([16]))
    run.emit("stop", reason="the budget of 0.001 s is spent")
    run.emit("end", reason="nothing stood up to being verified")
    assert Result(run).reason == "nothing was tried: the budget of 0.001 s is spent"


def test_total_times_make_the_general_ratio_where_they_make_the_score() -> None:
    run = run_of([16, 64], {1: [2.0, 1.0]}, [1, 1])
    assert run.opponent is not None
    assert Result(run).as_json()["general"]["speedup"]["ratio"] == pytest.approx(2**0.5, rel=1e-3)
    run.begin["score"] = "time"
    assert Result(run).as_json()["general"]["speedup"]["ratio"] == pytest.approx(200 / 150, rel=1e-3)


def test_a_cell_in_which_an_arm_died_claims_nothing() -> None:
    run = run_of([16, 64], {1: [2.0, 2.0]}, [1, 1])
    run.plays[3][1, "w0"] = "it died"
    answer = Result(run).as_json()
    assert [row.low for row in Result(run).table] == [33]
    assert answer["cells"][0]["reason"] == "it died"
    assert answer["general"]["speedup"] is None


def test_a_run_without_a_play_off_has_no_table() -> None:
    run = run_of([16], {1: [2.0]}, [1])
    run.plays.clear()
    result = Result(run)
    assert (result.table, result.improved, result.proven) == ([], False, False)


def test_nothing_right_is_told() -> None:
    run = Run()
    run.emit("begin", **begin([16]))
    run.emit("baseline", name="base", kind="baseline", status="ok", time_us={"w0": 1.0})
    run.emit("opponent", name="base")
    run.emit("ask", number=1, template="k", config={"A": 1})
    run.emit("trial", number=1, template="k", config={"A": 1}, status="wrong", reason="off by one")
    run.emit("stop", reason="enough")
    run.emit("end", reason="nothing stood up to being verified")
    answer = Result(run).as_json()
    assert answer["general"] is None
    assert answer["reason"] == "no configuration was right and measured: 1 wrong"


def test_the_folder_is_written_whole(tmp_path: Path) -> None:
    run = run_of([16, 64], {1: [2.0, 2.0]}, [1, 1])
    write_result(Result(run), tmp_path / "result")
    (tmp_path / "result" / "stale").write_text("")
    write_result(Result(run), tmp_path / "result")
    assert {p.name for p in (tmp_path / "result").iterdir()} == {"table.json", "proof.json"}
    assert [p.name for p in tmp_path.iterdir()] == ["result"]
