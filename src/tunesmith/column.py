"""A column: one value of the small language per row, as arrays.

Holds numerators and positive divisors (reduced only when rows are told apart), which rows have no value, and which hold
a bare name (as a code). Knows how to be made, cut, joined and read; nothing of operations. Invariant: `size` and
`divisor_size` bound the magnitudes of what stands in the arrays, in rows without a value too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunesmith.expression import Value
from tunesmith.grammar import LIMIT

Array = NDArray[Any]

_codes: dict[str, int] = {}  # of bare names; only equality of codes means anything


@dataclass(frozen=True, slots=True)
class Column:
    """A value per row. Arrays that are None say: all divisors 1, every row has a value, no row holds a name."""

    values: Array  # int64 or bool; the code where the row holds a name
    size: int
    divisor: Array | None = None
    divisor_size: int = 1
    undefined: Array | None = None
    named: Array | None = None

    @staticmethod
    def of(values: Sequence[Value | None]) -> Column:
        """A column of these values; None, and what is beyond 2^62, has no value."""
        undefined = np.array([v is None or _beyond(v) for v in values], bool)
        named = np.array([isinstance(v, str) for v in values], bool)
        ratios = [_ratio(v, bad) for v, bad in zip(values, undefined, strict=True)]
        truths = bool(values) and all(isinstance(v, bool) for v in values)
        tops, bottoms = [r[0] for r in ratios], [r[1] for r in ratios]
        column = Column(np.array(tops, bool if truths else np.int64), max(map(abs, tops), default=0))
        if any(bottom != 1 for bottom in bottoms):
            column = replace(column, divisor=np.array(bottoms, np.int64), divisor_size=max(bottoms))
        return replace(column, undefined=undefined if undefined.any() else None, named=named if named.any() else None)

    @staticmethod
    def constant(value: Value | None) -> Column:
        return Column.of([value]).each(lambda a: a.reshape(()))

    @staticmethod
    def concatenate(columns: Sequence[Column]) -> Column:
        """One column below the other; they are one-dimensional."""

        def joined(field: str, filler: int, dtype: type) -> Array | None:
            arrays = [getattr(c, field) for c in columns]
            if all(a is None for a in arrays):
                return None
            lengths = [len(c.values) for c in columns]
            filled = [np.full(n, filler, dtype) if a is None else a for a, n in zip(arrays, lengths, strict=True)]
            return np.concatenate(filled)

        values = np.concatenate([c.values for c in columns])
        size, divisor_size = max(c.size for c in columns), max(c.divisor_size for c in columns)
        divisor, undefined = joined("divisor", 1, np.int64), joined("undefined", False, bool)
        return Column(values, size, divisor, divisor_size, undefined, joined("named", False, bool))

    def each(self, change: Callable[[Array], Array]) -> Column:
        """The same change to every array."""
        maybe = [None if a is None else change(a) for a in (self.divisor, self.undefined, self.named)]
        return Column(change(self.values), self.size, maybe[0], self.divisor_size, maybe[1], maybe[2])

    def take(self, index: Array | slice) -> Column:
        return self.each(lambda a: a[index])

    def broadcast(self, shape: tuple[int, ...]) -> Column:
        return self.each(lambda a: np.broadcast_to(a, shape))

    @property
    def shape(self) -> tuple[int, ...]:
        arrays = (self.values, self.divisor, self.undefined, self.named)
        return np.broadcast_shapes(*(a.shape for a in arrays if a is not None))

    def parts(self) -> list[Array]:
        """Arrays that are equal in two rows exactly where the rows are."""
        values, divisor = self.values, self.divisor
        if divisor is not None:
            common = np.gcd(values, divisor)
            values, divisor = values // common, divisor // common
        parts = [values, *(a for a in (divisor, self.undefined, self.named) if a is not None)]
        if self.undefined is None:
            return parts
        return [a if a is self.undefined else np.where(self.undefined, 0, a) for a in parts]

    def holds(self) -> Array:
        """Where it is true; a row without a value does not hold."""
        truth, undefined = truth_of(self)
        return truth if undefined is None else truth & ~undefined

    def list(self) -> list[Value | None]:
        """The rows as scalars, None where there is no value (for tests and for the scalar form)."""
        whole = self.broadcast(self.shape).each(np.ravel)
        rows = range(whole.values.size)
        return [whole._scalar(i) for i in rows]

    def _scalar(self, i: int) -> Value | None:
        if self.undefined is not None and self.undefined[i]:
            return None
        value = self.values[i].item()
        if self.named is not None and self.named[i]:
            return next(name for name, code in _codes.items() if code == value)
        if self.divisor is not None and self.divisor[i] != 1:
            ratio = Fraction(value, int(self.divisor[i]))
            return ratio.numerator if ratio.denominator == 1 else ratio
        return bool(value) if self.values.dtype == bool else int(value)


def _beyond(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) > LIMIT


def _ratio(value: Value | None, undefined: bool) -> tuple[int, int]:
    if value is None or undefined:
        return 0, 1
    if isinstance(value, str):
        return _codes.setdefault(value, len(_codes)), 1
    return (value.numerator, value.denominator) if isinstance(value, Fraction) else (int(value), 1)


def either(*masks: Array | None) -> Array | None:
    found: Array | None = None
    for mask in masks:
        found = mask if found is None else found if mask is None else found | mask
    return found


def truth_of(column: Column) -> tuple[Array, Array | None]:
    values = column.values
    return values if values.dtype == bool else values != 0, either(column.undefined, column.named)
