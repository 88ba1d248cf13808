"""The statistics of times against known values and by simulation."""

from __future__ import annotations

import math
import random

import pytest

from tunesmith.timing import (
    holm,
    median_interval,
    minimum_interval,
    ratio_over_processes,
    student_cdf,
    student_quantile,
    timing,
)
from tunesmith.trial import score


@pytest.mark.parametrize(
    ("p", "degrees", "t"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.975, 6, 2.44691), (0.95, 9, 1.83311), (0.995, 14, 2.97684),
     (0.975, 30, 2.04227), (0.9995, 6, 5.95882), (0.5, 5, 0.0), (0.025, 6, -2.44691)],
)  # fmt: skip
def test_student_t_has_the_values_of_the_tables(p: float, degrees: int, t: float) -> None:
    assert student_quantile(p, degrees) == pytest.approx(t, abs=2e-5)
    assert student_cdf(t, degrees) == pytest.approx(p, abs=2e-6)


def test_student_t_at_its_ends() -> None:
    assert student_cdf(math.inf, 6) == 1.0
    assert student_cdf(-math.inf, 6) == 0.0
    assert student_cdf(0.0, 6) == 0.5
    assert student_cdf(1.0, 1) == pytest.approx(0.75)  # Cauchy
    assert 1 - student_cdf(40.0, 6) == pytest.approx(8.2e-9, rel=0.02)


def test_holm_steps_down_and_stops_at_the_first_that_fails() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == {"a": True, "b": False, "c": False}
    assert holm({"a": 0.001, "b": 0.02, "c": 0.03}) == {"a": True, "b": True, "c": True}
    assert holm({"a": 0.02, "b": 0.01}) == {"a": True, "b": True}
    assert holm({"a": 0.03, "b": 0.04}) == {"a": False, "b": False}  # each alone would hold
    assert holm({}) == {}


@pytest.mark.parametrize("n", [6, 7, 10, 25])
def test_the_interval_of_a_median_covers_it(n: int) -> None:
    rng = random.Random(n)
    hits = 0
    for _ in range(4000):
        _, low, high = median_interval([rng.expovariate(1.0) for _ in range(n)])
        hits += low <= math.log(2) <= high
    assert hits / 4000 > 0.95 - 0.01  # three deviations of the simulation


def test_fewer_than_six_samples_give_all_they_have() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert median_interval([4.0]) == (4.0, 4.0, 4.0)
    assert median_interval([1.0, 2.0, 3.0, 4.0]) == (2.5, 1.0, 4.0)


def test_an_outlier_moves_neither_median_nor_minimum() -> None:
    quiet = [10.0 + i / 100 for i in range(25)]
    assert median_interval([*quiet[:-1], 1e6]) == median_interval(quiet)
    assert minimum_interval([*quiet[:-1], 1e6])[0] == 10.0
    assert timing(quiet, minimum=True).time_us == 10.0
    assert timing(quiet, minimum=False).time_us == pytest.approx(10.12)


def test_a_ratio_over_processes_is_a_t_interval_on_logs() -> None:
    logs = [0.02, 0.03, 0.04, 0.03, 0.02, 0.04, 0.03]
    found = ratio_over_processes(logs)
    deviation = math.sqrt(sum((x - 0.03) ** 2 for x in logs) / 6 / 7)
    assert found.ratio == pytest.approx(math.exp(0.03))
    assert found.low == pytest.approx(math.exp(0.03 - 2.44691 * deviation), rel=1e-5)
    assert found.high == pytest.approx(math.exp(0.03 + 2.44691 * deviation), rel=1e-5)
    t = (0.03 - math.log(1.01)) / deviation  # against the minimum effect, not against nothing
    assert found.p == pytest.approx(1 - student_cdf(t, 6))


def test_one_process_proves_nothing() -> None:
    assert ratio_over_processes([0.5]).p == 1.0
    assert ratio_over_processes([0.5]).low == 0.0


def test_equal_logs_are_sure() -> None:
    assert ratio_over_processes([0.1, 0.1]).p == 0.0
    assert ratio_over_processes([0.0, 0.0]).p == 1.0


@pytest.mark.parametrize("nothing", [0.0, -1.0, math.inf, math.nan])
def test_a_time_that_is_none_wins_no_mean(nothing: float) -> None:
    """One zero would win the geometric mean of any table (the aggregator's underflow)."""
    with pytest.raises(ValueError, match="no measurement"):
        score({"a": nothing, "b": 100.0}, {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0})
    with pytest.raises(ValueError, match="no measurement"):
        score({"a": 1.0}, {"a": nothing}, {"a": 1.0}, "time")
