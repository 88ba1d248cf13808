"""What every argument of an operation has: its type, shape and strides, where its values come from, how it is judged.

Sizes are expressions of a task's dims, types may be a task's type symbols; what those are the task knows, not the argument.
Whether it is read, written or both is its role (`Input`, `Output`, `InOut`, `Scalar`, in `task.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar

from tunesmith.array import ArraySpec
from tunesmith.dtype import Dtype
from tunesmith.errors import TaskError, TunesmithError, unknown
from tunesmith.expression import Expression
from tunesmith.tolerance import Tolerance, tolerance


@dataclass(frozen=True, eq=False)
class Argument:
    """One argument of the operation. `spec` reads `type[shape]`: `"io[T, 2*d]"`, or `"f32"` for a scalar."""

    name: str
    spec: str
    _: KW_ONLY
    values: Any = None  # what its elements may be (values.py); default N(0, 1)
    stride: str | Sequence[str] | None = None  # elements between rows, or one per axis; default dense
    align: int | None = None  # bytes that its pointer promises; default the task's
    residency: str = "cold"  # "warm": the kernel before has just written it
    partial: bool | str = (
        False  # outputs: what the oracle masks stays as it is (True, "kept") or may hold anything ("any")
    )
    tolerance: Any = None  # outputs: what counts as equal (tolerance.py)

    reads: ClassVar[bool] = False
    writes: ClassVar[bool] = False
    is_scalar: ClassVar[bool] = False  # passed by value

    def __post_init__(self) -> None:
        where = f"argument {self.name}"
        try:
            array, strides = self.array, self._strides
        except TunesmithError as error:
            raise TaskError(f"{where}: {error.message}", hint=error.hint) from None
        if array.is_array is self.is_scalar:
            form = "a type alone, such as 'f32'" if self.is_scalar else "type[shape], such as 'io[T, 2*d]'"
            raise TaskError(f"{where}: {self.spec!r} is not {form}")
        if len(strides) != len(array.axes):
            raise TaskError(f"{where}: {len(strides)} strides for {len(array.axes)} axes; one alone goes with two axes")
        for what, value, known in (
            ("residency", self.residency, ("cold", "warm")),
            ("partial", self.partial, (False, True, "kept", "any")),
        ):
            if value not in known:
                raise TaskError(f"{where}: " + unknown(what, str(value), known))
        if not self.writes and (self.partial or self.tolerance is not None):
            raise TaskError(f"{where}: partial and tolerance belong to what is written")

    @cached_property
    def array(self) -> ArraySpec:
        return ArraySpec.parse(self.spec)

    @cached_property
    def _strides(self) -> tuple[Expression, ...]:
        axes = [f"({axis})" for axis in self.array.axes]
        if self.stride is None:
            return tuple(Expression.parse("*".join(["1", *axes[i + 1 :]])) for i in range(len(axes)))
        if isinstance(self.stride, str):
            return (Expression.parse(self.stride), Expression.parse("1"))
        return tuple(Expression.parse(s) for s in self.stride)

    def dtype(self, types: Mapping[str, str]) -> Dtype:
        return self.array.dtype(types)

    def shape(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        return self.array.shape(dims)

    def strides(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""
        return tuple(stride.integer(dims) for stride in self._strides)

    def stride_expression(self, axis: int) -> Expression:
        return self._strides[axis]

    def judged_by(self, types: Mapping[str, str]) -> Tolerance:
        """What counts as equal for this output: as declared, or what its type implies."""
        return tolerance(self.tolerance, self.dtype(types))
