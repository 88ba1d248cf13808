"""The data of a check: inputs drawn for a workload, what the oracle makes of them, and how arrays lie in memory.

Runs where the task's code is, never where a candidate is. A buffer is guard ▸ payload ▸ guard; the payload begins at
exactly the alignment that the task promises and no better, and the gaps of a strided argument are guards too.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tunesmith.argument import Argument
from tunesmith.dtype import Dtype, dtype
from tunesmith.errors import TaskError
from tunesmith.loading import own_code
from tunesmith.task import Task, Workload
from tunesmith.values import Draw

Array = NDArray[Any]
GUARD = 4096  # bytes before and after every payload


def draw(task: Task, workload: Workload, seed: int, distribution: str = "normal") -> dict[str, Array]:
    """The inputs of a workload, each rounded to its type; scalars are arrays without axes."""
    rng = np.random.default_rng([seed, *workload.name.encode()])
    drawn: dict[str, Array] = {}
    types = {name: dtype(kind) for name, kind in workload.types.items()}
    for argument in task.arguments:
        if not argument.reads:
            continue
        of = argument.dtype(workload.types)
        to = Draw(rng, argument.shape(workload.dims), of, workload.dims, types, drawn, distribution)
        with own_code(task.folder, f"the values of {argument.name}"):
            data = np.asarray(task.values_of(argument, workload).draw(to))
        _check_range(argument, data, of)
        with np.errstate(over="ignore"):
            drawn[argument.name] = data.astype(of.numpy, copy=False)
    return drawn


def _check_range(argument: Argument, data: Array, of: Dtype) -> None:
    if of.is_float or of.name == "bool" or data.size == 0:
        return
    info = np.iinfo(of.numpy)  # type: ignore[type-var]
    if data.min() < info.min or data.max() > info.max:
        raise TaskError(
            f"values of {argument.name} reach {data.min()} to {data.max()}; {of} holds {info.min} to {info.max}"
        )


def expected(
    task: Task, workload: Workload, inputs: Mapping[str, Array], rows: Array | None = None
) -> dict[str, Array]:
    """What the oracle makes of these inputs, in float64 (whole numbers as they are); `rows` picks some of the task's rows."""
    assert task.oracle is not None
    dims = dict(workload.dims)
    if rows is not None and task.rows is not None:
        inputs = {name: _take(task, task.argument(name), data, rows) for name, data in inputs.items()}
        dims[task.rows] = len(rows)
    known: dict[str, Any] = {**dims, **{name: widened(data) for name, data in inputs.items()}}
    wanted = inspect.signature(task.oracle).parameters
    with np.errstate(all="ignore"), own_code(task.folder, f"the reference of {task.name}"):
        answer = task.oracle(**{name: known[name] for name in wanted})
    if not isinstance(answer, Mapping):
        if len(task.outputs) != 1:
            names = ", ".join(a.name for a in task.outputs)
            raise TaskError(f"the reference of {task.name} returns one value; its outputs are {names}: return a dict")
        answer = {task.outputs[0].name: answer}
    found = {name: _numpy(value) for name, value in answer.items()}
    for argument in task.outputs:
        shape = argument.shape(dims)
        if argument.name not in found:
            raise TaskError(f"the reference of {task.name} gives no {argument.name!r}")
        given = found[argument.name].shape
        if given != shape:
            raise TaskError(f"the reference of {task.name} gives {argument.name} the shape {given}, not {shape}")
    return found


def widened(data: Array) -> Any:
    """As the oracle gets it: float64, whole numbers as they are, a number without axes as a Python number."""
    wide = data if data.dtype.kind in "iub" else data.astype(np.float64)
    return wide.item() if wide.ndim == 0 else wide


def _numpy(value: Any) -> Array:
    return value if isinstance(value, np.ndarray) else np.asarray(value.cpu() if hasattr(value, "cpu") else value)


def _take(task: Task, argument: Argument, data: Array, rows: Array) -> Array:
    for axis, expression in enumerate(argument.array.axes):
        if expression.text.strip() == task.rows:
            return np.take(data, rows, axis=axis)
    return data


def take_rows(task: Task, argument: Argument, data: Array, rows: Array | None) -> Array:
    """The part of an argument that belongs to these rows."""
    return data if rows is None else _take(task, argument, data, rows)


# --- memory ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """How one array lies in its buffer: where the payload starts, its shape and strides in elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    size: int  # of the whole buffer, guards included
    reads: bool = False
    writes: bool = False
    partial: str = ""  # "", "kept" or "any"
    warm: bool = False

    @property
    def numpy(self) -> np.dtype[Any]:
        return dtype(self.dtype).numpy

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last."""
        if 0 in self.shape:
            return 0
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.numpy.itemsize

    def view(self, image: NDArray[np.uint8]) -> Array:
        """The elements of a buffer's image, where they lie."""
        itemsize = self.numpy.itemsize
        flat = image[self.offset : self.offset + self.span].view(self.numpy) if self.span else np.empty(0, self.numpy)
        return as_strided(flat, self.shape, tuple(s * itemsize for s in self.strides))

    def image(self, data: Array | None, pattern: int) -> NDArray[np.uint8]:
        """A buffer's bytes: `data` in place, the pattern in the guards and, without data, everywhere."""
        image = np.full(self.size, pattern, np.uint8)
        if data is not None and self.span:
            self.view(image)[...] = data
        return image


def layout(task: Task, argument: Argument, workload: Workload, *, exact_alignment: bool) -> Layout:
    """Where an argument lies. Exact: aligned as the task promises and no better; else as an allocator would."""
    of = argument.dtype(workload.types)
    align = task.align_of(argument)
    one = Layout(
        name=argument.name,
        dtype=of.name,
        shape=argument.shape(workload.dims),
        strides=argument.strides(workload.dims),
        offset=GUARD + (align if exact_alignment and align < GUARD else 0),
        size=0,
        reads=argument.reads,
        writes=argument.writes,
        partial="kept" if argument.partial is True else argument.partial or "",
        warm=argument.residency == "warm",
    )
    size = -(-(one.offset + one.span + GUARD) // 256) * 256
    return Layout(**{**one.__dict__, "size": size})


def layouts(task: Task, workload: Workload, *, exact_alignment: bool) -> dict[str, Layout]:
    """The layout of every array argument."""
    return {
        a.name: layout(task, a, workload, exact_alignment=exact_alignment) for a in task.arguments if not a.is_scalar
    }
