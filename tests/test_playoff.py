"""Claims among cells by simulation, and what the play-off does with arms that cheat or die in it."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import numpy as np
import pytest

from scripted import COUNT, DeadError, Launched, Script, ScriptedDevice, candidate, checker, linear, linear_task
from tunesmith import rotation
from tunesmith.playoff import Outcome, Pairing, claims, play, round_ratio
from tunesmith.rotation import Arm, Rotation
from tunesmith.task import Workload
from tunesmith.timing import ratio_over_processes


def campaign(effects: list[float], rng: random.Random, *, spread: float = 0.01, processes: int = 7) -> list[Outcome]:
    logs = {str(i): [math.log1p(e) + rng.gauss(0, spread) for _ in range(processes)] for i, e in enumerate(effects)}
    out = claims({k: ratio_over_processes(v) for k, v in logs.items()}, {k: ([2.0], [1.0]) for k in logs})
    return list(out.values())


def test_a_baseline_against_itself_wins_at_most_once_in_a_hundred_tables() -> None:
    rng = random.Random(1)
    tables = [campaign([0.0] * 10, rng) for _ in range(200)]
    assert sum(any(cell.won for cell in table) for table in tables) <= 2
    rng = random.Random(2)
    tables = [campaign([0.01] * 10, rng) for _ in range(100)]  # at the minimum effect itself Holm bounds it
    assert sum(any(cell.won for cell in table) for table in tables) <= 0.05 * 100 + 7


def test_planted_wins_of_three_percent_are_found() -> None:
    rng = random.Random(3)
    cells = [cell for _ in range(100) for cell in campaign([0.03] * 10, rng)]
    assert sum(cell.won for cell in cells) >= 0.95 * len(cells)
    alone = [campaign([0.03] + [0.0] * 9, rng, processes=10)[0] for _ in range(100)]
    assert sum(cell.won for cell in alone) >= 0.95 * len(alone)  # alone among ten it takes ten processes
    assert not any(cell.lost for cell in cells)


def test_a_loss_is_told_as_one() -> None:
    rng = random.Random(4)
    cells = campaign([-0.05] * 10, rng)
    assert all(cell.lost and not cell.won for cell in cells)


def test_a_slowed_down_baseline_in_one_process_is_no_win() -> None:
    """One lucky process out of seven makes the interval wide, not the ratio large."""
    logs = {"w": [1.0, 0.0, 0.0, 0.001, -0.001, 0.0, 0.0]}
    out = claims({k: ratio_over_processes(v) for k, v in logs.items()}, {"w": ([1.0], [1.0])})
    assert out["w"].ratio.ratio > 1.15
    assert not out["w"].won


# --- arms --------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def few_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MAX_SETS", 4)


def played(script: Script, *, cpu: bool = False, processes: int = 3, baseline: Script = linear) -> Outcome:
    task = linear_task()
    device = ScriptedDevice({"linear": baseline, "challenger": script}, cpu=cpu)
    pairing = Pairing(task.workloads[0], candidate(), candidate("challenger"))
    return play(checker(device, task), [pairing], processes=processes)["w"]


def test_equal_arms_come_out_equal() -> None:
    for cpu in (False, True):
        found = played(linear, cpu=cpu)
        assert (found.ratio.ratio, found.won, found.lost, found.reason) == (1.0, False, False, "")
        assert found.baseline_us == found.challenger_us == 100.0


def does_nothing(k: Launched) -> None:
    """Lives on what its rival left there."""


def garbage(k: Launched) -> None:
    k.floats("out", COUNT)[:] = 7


def slows_its_rival_down(k: Launched) -> None:
    linear(k)
    k.floats("x", COUNT)[:] = 1e-40  # numbers that are slow to add


@pytest.mark.parametrize("cpu", [False, True], ids=["gpu", "cpu"])
@pytest.mark.parametrize("script", [does_nothing, garbage, slows_its_rival_down])
def test_a_challenger_that_cheats_only_here(script: Script, cpu: bool) -> None:
    found = played(script, cpu=cpu)
    assert not found.won
    assert "timed launch" in found.reason
    assert found.ratio.p == 1.0


def test_without_poison_between_the_arms_a_stale_output_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rotation, "reset", lambda *_, **__: None)
    restore = Rotation.restore
    monkeypatch.setattr(Rotation, "restore", lambda self, indices=None: restore(self) if indices is None else None)
    assert played(does_nothing).reason == ""


def test_a_claim_rests_on_what_the_challenger_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage that is the same every time passes every look; the output that is given back and judged is the gate."""
    from tunesmith.checker import Checker

    monkeypatch.setattr(Checker, "timed_reason", lambda *_: "")
    assert played(garbage).reason == ""


def test_without_a_look_at_inputs_a_rival_could_be_slowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arm, "look", lambda *_, **__: [])
    assert played(slows_its_rival_down).reason == ""


def test_an_arm_that_dies_costs_its_cell_alone() -> None:
    task = linear_task(workloads=[Workload("w", T=7, d=33), Workload("v", T=7, d=33)])

    def dies(k: Launched) -> None:
        raise DeadError("signal SIGSEGV")

    device = ScriptedDevice({"linear": linear, "dies": dies})
    w, v = task.workloads
    pairings = [Pairing(w, candidate(), candidate("dies")), Pairing(v, candidate(), candidate())]
    out = play(checker(device, task), pairings, processes=3)
    assert out["w"].reason == "signal SIGSEGV"
    assert (out["w"].won, out["w"].lost, out["w"].baseline_us) == (False, False, 0.0)
    assert (out["v"].reason, out["v"].ratio.processes) == ("", 3)


def test_a_time_of_zero_is_no_win() -> None:
    def script(k: Launched) -> None:
        linear(k)
        k.state["speed"] = 0.0

    found = played(script)
    assert not found.won
    assert "takes no time" in found.reason


def test_roles_and_orders_are_drawn_by_lot() -> None:
    task = linear_task()
    device = ScriptedDevice({"linear": linear, "challenger": linear})
    play(checker(device, task), [Pairing(task.workloads[0], candidate(), candidate("challenger"))], processes=12)
    timings: list[Any] = [m for m in device.said if type(m).__name__ == "RunTime"]
    assert {m.give_back_arm for m in timings} == {0, 1}
    assert all(m.arms[m.give_back_arm].build.key == "challenger" for m in timings)
    for m in timings:
        assert m.order.count(0) == m.order.count(1) == 20
        blocks = {m.order[i : i + 4] for i in range(0, 40, 4)}
        assert blocks <= {(0, 1, 1, 0), (1, 0, 0, 1)}
    assert len({m.order for m in timings}) > 6


def test_no_process_of_a_play_off_meets_an_expected_output() -> None:
    import pickle

    task = linear_task()
    device = ScriptedDevice({"linear": linear})
    judge = checker(device, task)
    play(judge, [Pairing(task.workloads[0], candidate(), candidate())], processes=2)
    sent = b"".join(pickle.dumps(m) for m in device.said)
    for content in (0, 1, 2):
        want = judge.oracle.expected(task.workloads[0], content)["out"]
        assert not any(want.astype(kind).tobytes()[:64] in sent for kind in (np.float64, np.float32))


def test_what_drifts_through_a_process_does_not_make_a_ratio() -> None:
    drift = [1.0 + 0.05 * i for i in range(16)]  # a machine that slows down by half
    base = [2.0 * d for d in drift]
    challenger = [1.0 * d for d in drift]
    challenger[4] = 9.0  # and one sample that was interrupted
    assert round_ratio(base, challenger) == pytest.approx(2.0, rel=1e-9)
    assert min(base) / statistics.median(challenger) < 1.6  # what figures taken apart would make of it
