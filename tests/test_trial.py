"""The arithmetic of a score, and that no trick of numbers wins it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunesmith.trial import Status, Trial, score

TIMES = {"a": 10.0, "b": 100.0}


def test_the_baseline_scores_one() -> None:
    for kind in ("speedup", "time"):
        assert score(TIMES, TIMES, {"a": 1, "b": 3}, kind) == pytest.approx(1)


def test_a_weighted_geometric_mean_of_speedups() -> None:
    assert score({"a": 5.0, "b": 100.0}, TIMES, {"a": 1, "b": 1}) == pytest.approx(math.sqrt(2))
    assert score({"a": 5.0, "b": 100.0}, TIMES, {"a": 3, "b": 1}) == pytest.approx(2**0.75)
    assert score({"a": 5.0, "b": 200.0}, TIMES, {"a": 1, "b": 1}) == pytest.approx(1)


def test_a_ratio_of_weighted_total_times() -> None:
    assert score({"a": 5.0, "b": 100.0}, TIMES, {"a": 1, "b": 1}, "time") == pytest.approx(110 / 105)
    assert score({"a": 5.0, "b": 100.0}, TIMES, {"a": 10, "b": 1}, "time") == pytest.approx(200 / 150)


@given(st.floats(0.01, 100), st.floats(0.1, 10), st.floats(0.1, 10))
def test_a_uniform_speedup_is_the_score_whatever_the_weights(factor: float, a: float, b: float) -> None:
    faster = {name: t / factor for name, t in TIMES.items()}
    for kind in ("speedup", "time"):
        assert score(faster, TIMES, {"a": a, "b": b}, kind) == pytest.approx(factor)


@pytest.mark.parametrize("time", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("kind", ["speedup", "time"])
def test_what_is_no_time_wins_nothing(time: float, kind: str) -> None:
    for mine, theirs in (({"a": time, "b": 1.0}, TIMES), (TIMES, {"a": time, "b": 1.0})):
        with pytest.raises(ValueError, match="no measurement"):
            score(mine, theirs, {"a": 1, "b": 1}, kind)


def test_a_missing_workload_is_no_win() -> None:
    for times in ({}, {"a": 1.0}, {"a": 1.0, "c": 1.0}):
        with pytest.raises(ValueError, match="against"):
            score(times, TIMES, {"a": 1, "b": 1})
    with pytest.raises(ValueError, match="tmie"):
        score(TIMES, TIMES, {"a": 1, "b": 1}, "tmie")


def test_only_a_score_makes_a_trial_measured() -> None:
    behind = Trial(1, "k", {}, Status.BEHIND, bound=0.8)
    assert not behind.measured
    assert Trial(2, "k", {}, Status.DUPLICATE, twin=1, score=1.5).measured
    assert f"{behind.status}" == "behind"
