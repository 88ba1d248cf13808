"""What counts as equal, per output: the kinds, their formulas and what each type implies by default.

Every kind compares an output `got` with `want`, the float64 oracle's, and knows nothing of devices. The default is never
looser than the type implies: `c` spacings of the type's numbers at the scale of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tunesmith.dtype import Dtype, dtype
from tunesmith.errors import TaskError, unknown

Array = NDArray[Any]


@dataclass(frozen=True)
class Verdict:
    """Whether an output is right; `error` in units of what is allowed (1 is the border), `reason` where it is not."""

    right: bool
    error: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Judging:
    """What a task's own function may look at. Everything is float64, whole numbers as they are."""

    name: str
    dtype: Dtype
    got: Array
    want: Array
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]  # all that the candidate wrote
    dims: Mapping[str, int]


@dataclass(frozen=True)
class Close:
    """|got - want| ≤ max(k · the baseline's own error, c · eps · RMS of the row) + r · eps · |want|, element by element.

    The baseline's own error is its largest over the output, in units of the row's RMS. The last term is the rounding of a
    right result to the type: without it a correctly rounded outlier would be refused.
    """

    k: float = 2.0
    c: float = 2.0
    r: float = 0.5


@dataclass(frozen=True)
class L2:
    """‖got - want‖ / ‖want‖ ≤ limit, over the whole output."""

    limit: float


@dataclass(frozen=True)
class Exact:
    """Every element equal to the oracle's, rounded to the type."""


@dataclass(frozen=True)
class SameBits:
    """Every bit equal to the baseline's."""


@dataclass(frozen=True)
class Quantised:
    """At most `codes` apart in the type's order, at most `share` of the elements differing at all; with `scale`, the name
    of the output that holds the scales of the rows' groups, got · scale stays within one code of the oracle's."""

    codes: int = 1
    share: float = 0.01
    scale: str | None = None


@dataclass(frozen=True)
class Indices:
    """Whole numbers that point into a ranking. `ties` says what equal values may do: "lower" (the lower index first, so
    every index must be the oracle's) or "any" (an index is right if it points at an equal value). `by` names what was
    ranked, an input or an extra value that the oracle returns; the indices point along its last axis."""

    by: str | None = None
    ties: str = "lower"


@dataclass(frozen=True)
class Judged:
    """The task's own function of a `Judging`, giving true or false, or a `Verdict`."""

    function: Callable[[Judging], bool | Verdict]


Tolerance = Close | L2 | Exact | SameBits | Quantised | Indices | Judged


def default_close(of: Dtype) -> Close:
    """What a type implies: narrow types are computed wider and rounded once; f32 and f64 carry every step's rounding."""
    return Close() if of.itemsize <= 2 else Close(c=16.0, r=4.0)


BY_NAME: dict[str, Callable[[Dtype], Tolerance]] = {
    "close": default_close,
    "exact": lambda of: Exact(),
    "same_bits": lambda of: SameBits(),
    "quantised": lambda of: Quantised(),
    "indices": lambda of: Indices(),
}


def tolerance(declared: Any, of: Dtype) -> Tolerance:
    """What a task may write after `tolerance=`: a kind, its name, a function, or one of these per type ({"f32": …}).

    Default `close`, whole numbers `exact`.
    """
    if isinstance(declared, Mapping):
        named = {dtype(name).name: kind for name, kind in declared.items()}
        return tolerance(named.get(of.name), of)
    if declared is None:
        return default_close(of) if of.is_float else Exact()
    if isinstance(declared, str):
        if declared not in BY_NAME:
            raise TaskError(unknown("tolerance", declared, BY_NAME))
        return BY_NAME[declared](of)
    if isinstance(declared, type) or not (callable(declared) or isinstance(declared, Tolerance)):
        raise TaskError(
            f"tolerance={declared!r}: write Close(), L2(4e-3), 'exact', 'same_bits', or a function of a Judging"
        )
    if isinstance(declared, Close | L2 | Exact | SameBits | Quantised | Indices | Judged):
        return declared
    return Judged(declared)
