"""Whatever the distribution: the shape asked for, and never outside of what was declared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunesmith.dtype import dtype
from tunesmith.errors import TaskError
from tunesmith.values import DISTRIBUTIONS, Choice, Draw, Generated, Given, Normal, Range, values

SHAPES = [(), (0,), (3, 0), (1,), (7,), (5, 300), (2, 3, 4)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
distributions = pytest.mark.parametrize("distribution", DISTRIBUTIONS)


def draw(kind: Any, shape: tuple[int, ...], of: str = "f32", distribution: str = "normal", seed: int = 0) -> np.ndarray:
    to = Draw(np.random.default_rng(seed), shape, dtype(of), {"P": 64}, {}, {}, distribution)
    drawn = np.asarray(kind.draw(to))
    assert drawn.shape == shape
    return drawn


@shapes
@distributions
def test_normal_numbers(shape: tuple[int, ...], distribution: str) -> None:
    x = draw(Normal(), shape, distribution=distribution)
    assert np.isfinite(x).all()
    assert np.array_equal(x, draw(Normal(), shape, distribution=distribution))
    if distribution == "zeros":
        assert not x.any()
    if distribution == "constant_rows" and x.ndim:
        assert np.array_equal(x, np.broadcast_to(x[..., :1], shape)) or x.size == 0


def test_the_distributions_are_what_they_are_called() -> None:
    shape = (100, 200)
    assert abs(draw(Normal(), shape).std() - 1) < 0.05
    assert abs(draw(Normal(), shape, distribution="scaled").std() - 10) < 0.5
    assert abs(draw(Normal(), shape, distribution="offset").mean() - 5) < 0.05
    outliers = np.abs(draw(Normal(), shape, distribution="outliers")) == 60
    assert 0 < outliers.sum() <= 20
    assert abs(draw(Normal(mean=3, deviation=2), shape).mean() - 3) < 0.1
    assert draw(Normal(), shape, "f64").dtype == np.float64


def test_special_values_come_with_the_extremes_only() -> None:
    kind = Normal(also=(-math.inf,))
    assert np.isneginf(draw(kind, (50,), distribution="extremes")).sum() >= 1
    assert np.isneginf(draw(kind, (), distribution="extremes")).all()
    assert np.isfinite(draw(kind, (50,), distribution="outliers")).all()


@shapes
@distributions
@pytest.mark.parametrize("of", ["f32", "f64", "i32", "i64", "u8"])
def test_a_range_is_never_left(shape: tuple[int, ...], distribution: str, of: str) -> None:
    x = draw(Range(3, "P - 1"), shape, of, distribution)
    assert ((x >= 3) & (x <= 63)).all()
    if of != "f32" and of != "f64" and x.size:
        assert np.issubdtype(x.dtype, np.integer)


@given(low=st.integers(-1000, 1000), width=st.integers(0, 50), distribution=st.sampled_from(DISTRIBUTIONS))
def test_a_range_of_whole_numbers_holds_both_bounds(low: int, width: int, distribution: str) -> None:
    x = draw(Range(low, low + width), (20,), "i32", distribution)
    assert set(x.tolist()) <= set(range(low, low + width + 1))


def test_bounds_of_whole_numbers_round_inwards() -> None:
    assert set(draw(Range(0.5, 2.5), (100,), "i32").tolist()) == {1, 2}


def test_bounds_beyond_what_a_float_holds() -> None:
    high = 2**62 - 1
    assert draw(Range(high, high), (4,), "i64").tolist() == [high] * 4
    assert draw(Range(2**63 - 2, 2**63 - 1), (9,), "i64").min() >= 2**63 - 2


def test_adversarial_indices() -> None:
    assert set(draw(Range(0, 9), (30,), "i32", "extremes").tolist()) == {9}
    assert set(draw(Range(0, 9), (30,), "i32", "zeros").tolist()) == {0}
    assert draw(Range(2, 4), (5,), "i32", "offset").tolist() == [2, 3, 4, 2, 3]
    assert len(set(draw(Range(0, 9), (30,), "i32", "constant_rows").tolist())) == 1


@distributions
def test_padding_slots_of_indices_are_drawn(distribution: str) -> None:
    x = draw(Range(0, 9, also=(-1,)), (2000,), "i32", distribution)
    assert -1 in x
    assert set(x.tolist()) <= {-1, *range(10)}


def test_a_range_without_numbers() -> None:
    with pytest.raises(TaskError, match="the range is empty"):
        draw(Range(5, 3), (2,), "i32")
    with pytest.raises(TaskError, match="the range is empty"):
        draw(Range(0.2, 0.8), (2,), "i32")
    with pytest.raises(TaskError, match=r"a bound of values, 'Q - 1': Q has no value"):
        draw(Range(0, "Q - 1"), (2,), "i32")


@shapes
@distributions
def test_choices(shape: tuple[int, ...], distribution: str) -> None:
    x = draw(Choice((2, 5)), shape, "i32", distribution)
    assert set(np.ravel(x).tolist()) <= {2, 5}


@distributions
def test_given_data_stays_as_it_is_and_is_a_copy(distribution: str) -> None:
    data = np.arange(3)
    x = draw(Given(data), (2, 3), "i32", distribution)
    assert x.tolist() == [[0, 1, 2], [0, 1, 2]]
    x[0, 0] = 9
    assert data[0] == 0
    with pytest.raises(TaskError, match=r"data of shape \(3,\) for an argument of shape \(2,\)"):
        draw(Given(data), (2,))


def test_a_generator_sees_what_was_drawn_before() -> None:
    def ends(to: Draw) -> np.ndarray:
        return np.cumsum(to["lengths"])

    rng = np.random.default_rng(0)
    to = Draw(rng, (3,), dtype("i32"), {}, {}, {"lengths": np.array([1, 2, 3])})
    assert Generated(ends).draw(to).tolist() == [1, 3, 6]
    with pytest.raises(TaskError, match="a generator asks for 'lengths', which is not drawn before it"):
        draw(Generated(ends), (3,))
    with pytest.raises(TaskError, match=r"ends gave shape \(3,\); asked for \(4,\)"):
        Generated(ends).draw(Draw(rng, (4,), dtype("i32"), {}, {}, to.arguments))


def test_what_may_be_written_after_values() -> None:
    assert values(None) == Normal()
    assert values(Range(0, 1)) == Range(0, 1)
    assert values(1e-6) == Given(1e-6)
    assert isinstance(values(np.zeros(3)), Given)
    assert isinstance(values(lambda to: 0), Generated)
    for mistaken in ("normal", Range):
        with pytest.raises(TaskError, match=r"write Normal\(\)"):
            values(mistaken)
