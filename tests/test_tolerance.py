"""What a task may write after `tolerance=`, and what a type implies."""

from __future__ import annotations

import pytest

from tunesmith.dtype import DTYPES, dtype
from tunesmith.errors import TaskError
from tunesmith.tolerance import L2, Close, Exact, Indices, Judged, Quantised, SameBits, tolerance


@pytest.mark.parametrize("of", DTYPES.values(), ids=str)
def test_the_default_follows_from_the_type(of: object) -> None:
    found = tolerance(None, of)  # type: ignore[arg-type]
    assert isinstance(found, Close) is dtype(of).is_float  # type: ignore[arg-type]
    assert isinstance(found, Close | Exact)


def test_narrow_types_are_judged_by_fewer_of_their_spacings_than_wide_ones() -> None:
    narrow, wide = tolerance(None, dtype("bf16")), tolerance(None, dtype("f32"))
    assert isinstance(narrow, Close)
    assert isinstance(wide, Close)
    assert narrow.c <= wide.c
    assert wide.c * dtype("f32").eps < narrow.c * dtype("bf16").eps


def test_kinds_names_and_functions() -> None:
    of = dtype("f32")
    for name, kind in (("exact", Exact), ("same_bits", SameBits), ("indices", Indices), ("quantised", Quantised)):
        assert isinstance(tolerance(name, of), kind)
    for kind in DTYPES.values():
        assert not kind.is_float or tolerance("close", kind) == tolerance(None, kind)
    assert tolerance(L2(4e-3), of) == L2(4e-3)
    judged = tolerance(lambda judging: True, of)
    assert isinstance(judged, Judged)


@pytest.mark.parametrize(
    ("mistaken", "rule"),
    [
        ("colse", "unknown tolerance 'colse'; known: close, exact"),
        ("l2", "unknown tolerance 'l2'"),
        (1e-2, "tolerance=0.01: write Close"),
        (L2, "write Close"),
    ],
)
def test_mistakes(mistaken: object, rule: str) -> None:
    with pytest.raises(TaskError) as caught:
        tolerance(mistaken, dtype("f32"))  # type: ignore[arg-type]
    assert rule in str(caught.value)
