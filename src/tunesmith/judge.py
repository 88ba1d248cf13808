"""Whether an output is right, by the tolerance that its task declared. Host arithmetic over arrays; no device.

`got` and `want` are float64 (whole numbers as they are), `raw` is what was written in its own type. A masked `want` says
where nothing is asked. Errors come in units of what is allowed: 1 is the border.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunesmith.dtype import Dtype
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
)

Array = NDArray[Any]
TINY = np.finfo(np.float64).tiny
RIGHT = Verdict(True)


def judge(kind: Tolerance, of: Dtype, judging: Judging, *, raw: Array, baseline: Array | None = None,
          baseline_error: float = 0.0) -> Verdict:  # fmt: skip
    """Judge one output. `baseline` is the baseline's raw output, which `same_bits` compares with."""
    keep = ~np.ma.getmaskarray(judging.want) if np.ma.isMaskedArray(judging.want) else None
    got, want = judging.got, np.ma.getdata(judging.want)
    match kind:
        case Judged(function):
            answer = function(judging)
            return answer if isinstance(answer, Verdict) else _say(bool(answer), "the task's own judgement")
        case SameBits():
            if baseline is None:
                return Verdict(False, reason="same_bits, and there is no baseline to be equal to")
            return _equal(bits(raw), bits(baseline), keep, "bits differ from the baseline's")
        case Exact():
            return _equal(bits(raw), bits(want.astype(of.numpy)), keep, "differ from the oracle's")
        case Close(k, c, r):
            return _close(got, want, keep, max(k * baseline_error, c * of.eps), r * of.eps)
        case L2(limit):
            return _l2(got, want, keep, limit)
        case Quantised():
            return _quantised(kind, raw, judging, of, keep)
        case Indices():
            return _indices(kind, judging, keep)


def row_scale(want: Array) -> Array:
    """The RMS of each row along the last axis; of everything where there is one axis only."""
    finite = np.where(np.isfinite(want), want, 0.0)
    if not want.size:
        return finite
    return np.asarray(np.sqrt(np.mean(np.square(finite), axis=-1 if want.ndim > 1 else None, keepdims=True)))


def relative_error(got: Array, want: Array) -> float:
    """The largest error in units of the row's RMS: a baseline's own error, as `close` uses it."""
    want = np.ma.getdata(want)
    with np.errstate(all="ignore"):
        error = np.abs(got - want) / np.maximum(row_scale(want), TINY)
    finite = error[np.isfinite(error)]
    return float(finite.max()) if finite.size else 0.0


def bits(data: Array) -> Array:
    """The elements' bits as whole numbers."""
    return np.ascontiguousarray(data).view(f"u{data.dtype.itemsize}")


def _say(right: bool, reason: str) -> Verdict:
    return RIGHT if right else Verdict(False, float("inf"), reason)


def _close(got: Array, want: Array, keep: Array | None, relative: float, rounding: float) -> Verdict:
    with np.errstate(all="ignore"):
        allowed = relative * row_scale(want) + rounding * np.abs(want)
        over = np.abs(got - want) / np.maximum(allowed, TINY)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    over = np.where(same, 0.0, np.where(np.isfinite(want) & np.isfinite(got), over, np.inf))
    if keep is not None:
        over = np.where(keep, over, 0.0)
    worst = float(over.max(initial=0.0))
    if worst <= 1.0:
        return Verdict(True, worst)
    at = np.unravel_index(int(over.argmax()), over.shape)
    where = ", ".join(str(int(i)) for i in at)
    bound = float(np.broadcast_to(allowed, over.shape)[at])
    off = f"off by {abs(got[at] - want[at]):.3g}, allowed {bound:.3g}"
    found = f"at [{where}] got {got[at]:.9g}, want {want[at]:.9g}: {off}"
    return Verdict(False, worst, f"{int((over > 1.0).sum())} of {over.size} elements off; {found}")


def _l2(got: Array, want: Array, keep: Array | None, limit: float) -> Verdict:
    if keep is not None:
        got, want = got[keep], want[keep]
    finite = np.isfinite(want)
    if not np.array_equal(np.isfinite(got), finite):
        return _say(False, f"{int((np.isfinite(got) != finite).sum())} elements are finite on one side only")
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return _say(False, "infinite elements differ")
    norm = float(np.linalg.norm(want[finite]))
    off = float(np.linalg.norm(got[finite] - want[finite]))
    error = off / norm if norm else (0.0 if off == 0.0 else float("inf"))
    return Verdict(
        error <= limit, error / limit, "" if error <= limit else f"relative L2 error {error:.3g}, allowed {limit:g}"
    )


def _equal(got: Array, want: Array, keep: Array | None, what: str) -> Verdict:
    differs = np.asarray(got != want)
    if keep is not None:
        differs = differs & keep
    many = int(differs.sum())
    return _say(not many, f"{many} of {differs.size} elements {what}")


def _quantised(kind: Quantised, raw: Array, judging: Judging, of: Dtype, keep: Array | None) -> Verdict:
    want = np.ma.getdata(judging.want)
    if kind.scale is not None:
        groups = judging.outputs[kind.scale]
        unit = np.repeat(groups, want.shape[-1] // max(1, groups.shape[-1]), axis=-1)
        verdict = _close(judging.got * unit, want * unit, keep, 0.0, kind.codes * of.eps)
        if not verdict.right:
            return verdict
    apart = np.abs(code_order(raw) - code_order(want.astype(of.numpy)))
    if keep is not None:
        apart = np.where(keep, apart, 0)
    worst = int(apart.max(initial=0))
    share = float((apart > 0).mean()) if apart.size else 0.0
    if worst > kind.codes or share > kind.share:
        allowed = f"allowed: {kind.codes} code(s) in {kind.share:.2%}"
        return Verdict(False, float(worst), f"codes up to {worst} apart, {share:.2%} of them differ; {allowed}")
    return Verdict(True, max(worst / max(kind.codes, 1), share / kind.share if kind.share else 0.0))


def code_order(data: Array) -> Array:
    """Whole numbers in the order of the type's codes: neighbours differ by one."""
    if data.dtype.kind in "iu":
        return data.astype(np.int64)
    codes = bits(data).astype(np.int64)
    sign = 1 << (8 * data.dtype.itemsize - 1)
    return np.where(codes & sign, sign - codes, codes)


def _indices(kind: Indices, judging: Judging, keep: Array | None) -> Verdict:
    got, want = judging.got, np.ma.getdata(judging.want)
    if kind.ties == "lower" or kind.by is None:
        return _equal(got, want, keep, "point elsewhere than the oracle's")
    ranked = judging.inputs[kind.by] if kind.by in judging.inputs else judging.outputs[kind.by]
    inside = (got >= 0) & (got < ranked.shape[-1])
    if not inside.all():
        return _say(False, f"{int((~inside).sum())} indices point outside")
    mine = np.take_along_axis(ranked, got.astype(np.int64), -1)
    theirs = np.take_along_axis(ranked, want.astype(np.int64), -1)
    verdict = _equal(mine, theirs, keep, "point at other values than the oracle's")
    ordered = np.sort(got, axis=-1)
    twice = bool((ordered[..., 1:] == ordered[..., :-1]).any())
    return _say(not twice, "an index stands twice in a row") if verdict.right else verdict
