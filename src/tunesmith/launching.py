"""A template's launches and workspaces in numbers: what their expressions come to once every name has a value.

Knows how an argument of a launch is passed: a buffer by its address, a scalar of the task in its declared type, anything
else as 32 bits unless a cast says more, and never a number that its type cannot hold. What the names mean is `naming`'s
business, and whether template and task fit each other is `binding`'s.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tunesmith.argument import Argument
from tunesmith.dtype import Dtype, dtype
from tunesmith.expression import Expression, Undefined
from tunesmith.header import Arg, Launch, Workspace
from tunesmith.launch import Drawn, Local, Number, Pointer, ResolvedLaunch, ResolvedWorkspace
from tunesmith.naming import Names
from tunesmith.task import Workload
from tunesmith.values import Given, values


def resolved_launch(launch: Launch, pointers: Collection[str], names: Names, workload: Workload) -> ResolvedLaunch:
    """One launch in numbers, or `Undefined`; `pointers` are the arguments that are buffers."""
    return ResolvedLaunch(
        entry=launch.entry,
        grid=_three("grid", launch.grid, names),
        block=_three("block", launch.block, names),
        args=tuple(_passed(a, pointers, names, workload) for a in launch.args),
        shared_bytes=launch.shared_bytes.integer(names, names) if launch.shared_bytes else 0,
        cluster=_three("cluster", launch.cluster, names) if launch.cluster else (1, 1, 1),
        cooperative=launch.cooperative,
        programmatic=launch.programmatic,
    )


def resolved_workspace(workspace: Workspace, names: Names) -> ResolvedWorkspace:
    """One workspace with its elements counted, or `Undefined`."""
    size = 1
    for axis in workspace.array.axes:
        size *= max(0, axis.integer(names, names))
    return ResolvedWorkspace(workspace.name, workspace.array.dtype(names.types), size, workspace.zeroed)


def single_value(argument: Argument, workload: Workload) -> int | float | None:
    """The value of a scalar argument, if it is one number in this workload."""
    declared = values(workload.values.get(argument.name, argument.values))
    if not isinstance(declared, Given) or np.ndim(declared.data) != 0:
        return None
    number: int | float = np.asarray(declared.data).item()
    return number


def _three(what: str, sizes: tuple[Expression, ...], names: Names) -> tuple[int, int, int]:
    found = [e.integer(names, names) for e in sizes]
    if any(n < 0 for n in found):
        raise Undefined(f"{what} {found} has a negative size")
    x, y, z = [*found, 1, 1][:3]
    return x, y, z


def _passed(arg: Arg, pointers: Collection[str], names: Names, workload: Workload) -> Pointer | Number | Drawn | Local:
    name = arg.text.strip()
    if name in pointers:
        return Pointer(name)
    if arg.cast == "local":
        return Local(arg.expression.integer(names, names))
    argument = names.argument(name)
    if argument is not None:
        of = argument.dtype(names.types)
        if (number := single_value(argument, workload)) is None:
            return Drawn(of, name)
        return Number(of, float(number)) if of.is_float else _whole(arg, int(number), of)
    if arg.cast and dtype(arg.cast).is_float:
        value = arg.expression.evaluate(names, names)
        return Number(dtype(arg.cast), float(value) if not isinstance(value, str) else float("nan"))
    return _whole(arg, arg.expression.integer(names, names), dtype(arg.cast or "i32"))


def _whole(arg: Arg, value: int, of: Dtype) -> Number:
    if of.name == "bool":
        return Number(of, int(value != 0))
    signed = of.name.startswith("i")
    bits = 8 * of.itemsize
    allowed = range(-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else range(2**bits)
    if value not in allowed:
        raise Undefined(
            f"args, {arg.text!r} is {value}, beyond {of.name}"
            + ("" if arg.cast else f"; write i64({arg.text}) if the kernel takes 64 bits")
        )
    return Number(of, value)
