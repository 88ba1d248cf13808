"""Every kind of tolerance at its border, just inside and just outside; masks, NaN, inf, rows of different scale."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tunesmith.dtype import dtype
from tunesmith.judge import code_order, judge, relative_error, row_scale
from tunesmith.tolerance import (
    L2,
    Close,
    Exact,
    Indices,
    Judged,
    Judging,
    Quantised,
    SameBits,
    Tolerance,
    Verdict,
    default_close,
)

F32, BF16, I32, E4M3 = dtype("f32"), dtype("bf16"), dtype("i32"), dtype("e4m3")


def verdict(kind: Tolerance, got: Any, want: Any, of: Any = F32, **more: Any) -> Verdict:
    """Judge numbers given in float64; `raw` is what they are in the type."""
    got = np.asarray(got)
    keys = ("inputs", "outputs")
    judging = Judging("out", of, got, want if np.ma.isMaskedArray(want) else np.asarray(want),
                      more.get("inputs", {}), more.get("outputs", {}), {})  # fmt: skip
    raw = more.get("raw", got.astype(of.numpy))
    return judge(kind, of, judging, raw=raw, **{k: v for k, v in more.items() if k not in (*keys, "raw")})


# --- close -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("units", "right"), [(0.999, True), (1.0, True), (1.001, False), (-1.0, True), (-1.001, False)]
)
def test_close_ends_where_it_says(units: float, right: bool) -> None:
    want = np.ones((2, 4))  # a row of RMS 1
    kind = Close(k=0, c=2, r=0.5)
    allowed = (2 + 0.5) * F32.eps
    got = want.copy()
    got[1, 2] += units * allowed
    found = verdict(kind, got, want)
    assert found.right is right
    assert found.error == pytest.approx(abs(units), rel=1e-6)
    assert right or "at [1, 2]" in found.reason


def test_close_forgives_the_baselines_own_error_times_k() -> None:
    want = np.ones((1, 4))
    got = want + 3e-3
    assert verdict(Close(k=2, c=2), got, want, baseline_error=2e-3).right
    assert not verdict(Close(k=2, c=2), got, want, baseline_error=1e-3).right
    assert not verdict(Close(k=0, c=2), got, want, baseline_error=1.0).right


def test_close_takes_the_scale_of_each_row() -> None:
    """An absolute tolerance would let a small row be zeros beside a large one."""
    want = np.array([[1e-6] * 4, [1.0] * 4])
    got = want.copy()
    got[0] = 0
    assert not verdict(Close(), got, want).right
    assert row_scale(want).ravel() == pytest.approx([1e-6, 1.0])
    assert verdict(Close(), want * (1 + F32.eps), want).right


def test_close_of_a_row_of_zeros_asks_for_zeros() -> None:
    want = np.zeros((1, 4))
    assert verdict(Close(), want, want).right
    assert not verdict(Close(), want + 1e-30, want).right


def test_close_rounding_of_an_outlier_is_no_error() -> None:
    want = np.array([[1000.3] + [0.001] * 10_000])
    got = want.astype(BF16.numpy).astype(np.float64)
    assert verdict(Close(k=0), got, want, BF16).right


@pytest.mark.parametrize(
    ("got", "want", "right"),
    [(np.nan, 1.0, False), (1.0, np.nan, False), (np.nan, np.nan, True), (np.inf, np.inf, True),
     (-np.inf, np.inf, False), (np.inf, 1e38, False), (3.4e38, np.inf, False)],
)  # fmt: skip
@pytest.mark.parametrize("kind", [Close(), L2(0.5)])
def test_nan_and_inf_are_right_only_where_they_are_wanted(
    kind: Tolerance, got: float, want: float, right: bool
) -> None:
    assert verdict(kind, [[got, 1.0]], [[want, 1.0]]).right is right


def test_inf_in_a_row_does_not_widen_it() -> None:
    assert not verdict(Close(), [[np.inf, 1.1]], [[np.inf, 1.0]]).right


@pytest.mark.parametrize("kind", [Close(), L2(1e-3), Exact(), Quantised()])
def test_a_mask_asks_nothing_there_and_everything_elsewhere(kind: Tolerance) -> None:
    of = E4M3 if isinstance(kind, Quantised) else F32
    want = np.ma.masked_array([[1.0, 2.0, 4.0]], [[False, True, False]])
    assert verdict(kind, [[1.0, 448.0, 4.0]], want, of).right
    assert verdict(kind, [[1.0, np.nan, 4.0]], want, of).right
    assert not verdict(kind, [[4.0, 2.0, 4.0]], want, of).right


def test_the_default_is_no_looser_than_the_type() -> None:
    assert default_close(BF16) == Close(k=2, c=2, r=0.5)
    assert default_close(F32) == Close(k=2, c=16, r=4)
    rng = np.random.default_rng(0)
    want = rng.standard_normal((4, 256))
    assert verdict(default_close(BF16), want.astype(BF16.numpy).astype(float), want, BF16).right
    narrow = want.astype(ml_dtypes.float8_e4m3fn).astype(float)
    assert not verdict(default_close(BF16), narrow, want, BF16).right
    assert not verdict(default_close(F32), want.astype(np.float16).astype(float), want, F32).right


def test_relative_error_is_in_units_of_the_row() -> None:
    want = np.array([[2.0, 2.0], [0.5, 0.5]])
    assert relative_error(want + np.array([[0.2, 0.0], [0.0, 0.0]]), want) == pytest.approx(0.1)
    assert relative_error(want + np.array([[0.0, 0.0], [0.0, 0.2]]), want) == pytest.approx(0.4)


# --- l2 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("off", "right"), [(0.0999, True), (0.1, True), (0.1001, False)])
def test_l2_ends_where_it_says(off: float, right: bool) -> None:
    assert verdict(L2(0.1), [3.0, 4.0 - 5 * off], [3.0, 4.0]).right is right


def test_l2_of_nothing_asks_for_nothing() -> None:
    assert verdict(L2(0.1), [0.0], [0.0]).right
    assert not verdict(L2(0.1), [1e-30], [0.0]).right


# --- equal -------------------------------------------------------------------------------------------------------------


def test_exact_is_the_oracle_rounded_to_the_type() -> None:
    assert verdict(Exact(), np.array([0.1]).astype(np.float32).astype(float), [0.1]).right
    assert not verdict(Exact(), [0.1 + 1e-8], [0.1]).right
    assert verdict(Exact(), [7], [7], I32).right
    assert not verdict(Exact(), [7], [8], I32).right
    assert not verdict(Exact(), [-0.0], [0.0]).right  # bits, not values


def test_same_bits_are_the_baselines_and_not_the_oracles() -> None:
    raw = np.array([0.5, np.nan], np.float32)
    assert verdict(SameBits(), raw, [9.0, 9.0], baseline=raw.copy()).right
    assert not verdict(SameBits(), raw, raw, baseline=np.array([0.5, 0.5], np.float32)).right
    assert not verdict(SameBits(), [0.0], [0.0], baseline=np.array([-0.0], np.float32)).right
    assert "no baseline" in verdict(SameBits(), raw, raw).reason


# --- quantised ---------------------------------------------------------------------------------------------------------


def test_quantised_counts_codes_and_shares() -> None:
    want = np.full((1, 100), 8.0)
    got = want.copy()
    got[0, 0] = 9.0  # the next code of e4m3
    assert verdict(Quantised(codes=1, share=0.01), got, want, E4M3).right
    assert not verdict(Quantised(codes=1, share=0.009), got, want, E4M3).right
    got[0, 0] = 10.0
    assert not verdict(Quantised(codes=1, share=0.01), got, want, E4M3).right
    assert verdict(Quantised(codes=2, share=0.01), got, want, E4M3).right


def test_codes_are_neighbours_across_zero() -> None:
    values = np.array([-1.0, -0.5, -0.0, 0.0, 0.5, 1.0], np.float16)
    order = code_order(values)
    assert list(order) == sorted(order)
    assert order[2] == order[3]
    assert list(code_order(np.array([-3, 7], np.int8))) == [-3, 7]


def test_quantised_with_scales_judges_what_they_stand_for() -> None:
    want, scales = np.array([[8.0, 8.0]]), np.array([[0.5]])
    kind = Quantised(codes=1, share=1.0, scale="s")
    assert verdict(kind, [[9.0, 8.0]], want, E4M3, outputs={"s": scales}).right
    assert not verdict(kind, [[16.0, 8.0]], want, E4M3, outputs={"s": scales}).right


# --- indices and judgements of a task's own ----------------------------------------------------------------------------


def test_indices_to_the_lower_of_equal_values() -> None:
    want = np.array([[2, 0]])
    assert verdict(Indices(), [[2, 0]], want, I32).right
    assert not verdict(Indices(), [[0, 2]], want, I32).right


@pytest.mark.parametrize(
    ("got", "right"),
    [([[2, 0]], True), ([[2, 1]], True), ([[2, 3]], False), ([[2, 2]], False), ([[2, 4]], False), ([[2, -1]], False)],
)
def test_indices_to_any_of_equal_values(got: Any, right: bool) -> None:
    ranked = {"scores": np.array([[5.0, 5.0, 9.0, 1.0]])}
    assert verdict(Indices(by="scores", ties="any"), got, np.array([[2, 0]]), I32, inputs=ranked).right is right


def test_a_tasks_own_function_has_the_last_word() -> None:
    assert verdict(Judged(lambda j: bool((j.got == 1).all())), [1.0], [2.0]).right
    assert not verdict(Judged(lambda j: False), [1.0], [1.0]).right
    assert verdict(Judged(lambda j: Verdict(True, 0.5)), [1.0], [1.0]).error == 0.5


def test_an_empty_output_is_right() -> None:
    for kind in (Close(), L2(0.1), Exact(), Quantised()):
        assert verdict(kind, np.zeros((0, 4)), np.zeros((0, 4)), E4M3 if isinstance(kind, Quantised) else F32).right
