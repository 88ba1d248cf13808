"""Two lines for a time: the target, which good kernels come near or pass by a few percent, and what is not possible.

The target is the larger of what a copy of the same bytes takes here and what the arithmetic takes at the measured peak
rate of its type. Impossible is beyond what the memory's pins carry. Pure arithmetic over a task and a calibration.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith.argument import Argument
from tunesmith.calibrate import Calibration
from tunesmith.dtype import dtype, is_type
from tunesmith.errors import TaskError, TunesmithError
from tunesmith.expression import Expression, Undefined
from tunesmith.task import Task, Workload

MARGIN = 0.05  # below the floor that a time must be to be impossible


def target_us(task: Task, workload: Workload, calibration: Calibration) -> float | None:
    """What a good kernel takes; None where the task tells neither bytes nor flops."""
    times = [t for t in (_memory_us(task, workload, calibration), _flops_us(task, workload, calibration)) if t]
    return max(times, default=None)


def peak_us(task: Task, workload: Workload, peak_bytes_per_s: float | None, *, kept_bytes: float = 0.0) -> float | None:
    """What no kernel can be faster than, with a margin; None where it is not known or where arguments are in cache.

    `kept_bytes` is what may stay in the cache when the clock stops: written, and not yet in memory.
    """
    if peak_bytes_per_s is None or any(a.residency == "warm" for a in task.arguments):
        return None
    moved = amount(task, workload, "bytes_moved") - kept_bytes
    return (1 - MARGIN) * moved / peak_bytes_per_s * 1e6 if moved > 0 else None


def amount(task: Task, workload: Workload, what: str) -> float:
    """The task's `bytes_moved` or `flops` in a workload."""
    text = getattr(task, what)
    try:
        value = Expression.parse(text).evaluate(workload.dims, _Facts(task, workload))
        return max(0.0, float(value))
    except (Undefined, TunesmithError, ValueError) as error:
        raise TaskError(f"task {task.name}, workload {workload.name}: {what} = {text!r}: {error}") from None


@dataclass(frozen=True)
class _Facts:
    """What `sizeof(io)` and `stride(x, 0)` mean in a workload."""

    task: Task
    workload: Workload

    def lookup(self, function: str, name: str, argument: int | None) -> int | bool:
        given: dict[str, Argument] = {a.name: a for a in self.task.arguments}
        if function == "sizeof" and name in given:
            return given[name].dtype(self.workload.types).itemsize
        kind = self.workload.types.get(name, name)
        if function == "sizeof" and is_type(kind):
            return dtype(kind).itemsize
        if function == "stride" and name in given and argument is not None:
            strides = given[name].strides(self.workload.dims)
            if 0 <= argument < len(strides):
                return strides[argument]
        raise Undefined(f"{function}({name}) is not known here")


def _memory_us(task: Task, workload: Workload, calibration: Calibration) -> float | None:
    moved = amount(task, workload, "bytes_moved")
    if not moved:
        return None
    share = _warm_share(task, workload)
    cold = calibration.copy_time_us(moved) if share < 1 else 0.0
    warm = calibration.copy_time_us(moved, warm=True) if share > 0 else 0.0
    return (1 - share) * cold + share * warm


def _warm_share(task: Task, workload: Workload) -> float:
    """How much of what the arguments hold is in cache already."""
    sizes = {True: 0, False: 0}
    for argument in task.arguments:
        size = argument.dtype(workload.types).itemsize
        for n in argument.shape(workload.dims):
            size *= n
        sizes[argument.residency == "warm"] += 0 if argument.is_scalar else size
    total = sizes[True] + sizes[False]
    return sizes[True] / total if total else 0.0


def _flops_us(task: Task, workload: Workload, calibration: Calibration) -> float | None:
    flops = amount(task, workload, "flops")
    rate = _rate(task, workload, calibration)
    return flops / rate * 1e6 if flops and rate else None


def _rate(task: Task, workload: Workload, calibration: Calibration) -> float | None:
    """The highest peak rate among the floating types that the operation reads; None where one of them was not measured."""
    kinds = {a.dtype(workload.types) for a in task.arguments if a.reads and not a.is_scalar}
    rates = [calibration.flops_per_s(kind.name) for kind in kinds if kind.is_float]
    return None if None in rates else max((r for r in rates if r), default=None)
