"""Testing the tester: outputs that are wrong in known ways must be rejected, or the check is too weak for this task.

Wrong outputs are made from right ones, as arrays; no kernel is run. One that changes no bit here is skipped and listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunesmith.checker import Checker
from tunesmith.data import expected, take_rows
from tunesmith.dtype import dtype
from tunesmith.judge import bits
from tunesmith.task import Task, Workload

Array = NDArray[Any]
FEW = 16  # elements; fewer may be nearly right by luck, so more data is drawn, and rounding them shows nothing
NARROWER = {"f64": "f32", "f32": "bf16", "f16": "e4m3", "bf16": "e4m3"}


@dataclass(frozen=True)
class Mutant:
    """A wrong output, and whether the check caught it; None where it changes no bit here."""

    name: str
    output: str
    caught: bool | None


def mutants(checker: Checker, workload: Workload) -> list[Mutant]:
    """Outputs wrong in known ways, judged like a candidate's. One that passes means the check is too weak for this task."""
    few = max(int(np.prod(a.shape(workload.dims))) for a in checker.task.outputs) < FEW
    found: dict[tuple[str, str], list[bool]] = {}
    for content in range(5 if few else 1):
        for key, caught in _caught(checker, workload, content).items():
            found.setdefault(key, [])
            found[key] += [] if caught is None else [caught]
    return [Mutant(name, output, any(caught) if caught else None) for (name, output), caught in found.items()]


def _caught(checker: Checker, workload: Workload, content: int) -> dict[tuple[str, str], bool | None]:
    task, oracle = checker.task, checker.oracle
    rows = oracle.rows(workload)
    wanted = oracle.expected(workload, content)
    right, other = _rounded(task, workload, wanted), _rounded(task, workload, oracle.expected(workload, content + 1))
    drawn = oracle.inputs(workload, content)
    narrow = _rounded(task, workload, expected(task, workload, _narrower(drawn, task, workload), rows))
    inputs = {n: take_rows(task, task.argument(n), d, rows) for n, d in drawn.items()}
    found: dict[tuple[str, str], bool | None] = {}
    for argument in task.outputs:
        name = argument.name
        asked = np.flatnonzero(~np.ma.getmaskarray(wanted[name]))
        ways = _wrong_ways(right[name], other[name], inputs, asked)
        for what, wrong in (*ways, ("computed from narrower inputs", narrow[name])):
            same = np.array_equal(bits(wrong).reshape(-1)[asked], bits(right[name]).reshape(-1)[asked])
            verdict, _ = checker.compare({**right, name: wrong}, workload, "normal", content=content)
            found[what, name] = None if same else not verdict.right
    return found


def _rounded(task: Task, workload: Workload, outputs: Mapping[str, Array]) -> dict[str, Array]:
    return {a.name: np.ma.getdata(outputs[a.name]).astype(a.dtype(workload.types).numpy) for a in task.outputs}


def _narrower(inputs: Mapping[str, Array], task: Task, workload: Workload) -> dict[str, Array]:
    """Inputs as a kernel sees them that works in a narrower type than it was given."""
    found = dict(inputs)
    for name, data in inputs.items():
        type_ = NARROWER.get(task.argument(name).dtype(workload.types).name)
        if type_ is not None and data.ndim:
            with np.errstate(all="ignore"):
                found[name] = data.astype(dtype(type_).numpy).astype(data.dtype)
    return found


def _wrong_ways(right: Array, other: Array, inputs: Mapping[str, Array], asked: Array) -> list[tuple[str, Array]]:
    """By name; `asked` are the elements, counted through, that the oracle does not mask."""
    flat = right.reshape(-1)
    size, count = flat.size, asked.size
    found = [("all zeros", np.zeros_like(right)), ("the previous output", other)]
    for name, data in inputs.items():
        if data.size >= size and data.dtype == right.dtype:
            found.append((f"a copy of {name}", data.reshape(-1)[:size].reshape(right.shape)))
    tail, tile = flat.copy(), flat.copy()
    tail[asked[count - max(1, count // 16) :]] = 0
    stale = asked[count // 3 : count // 3 + max(1, count // 32)]
    tile[stale] = other.reshape(-1)[stale]
    found += [("a missing tail", tail.reshape(right.shape)), ("one stale tile", tile.reshape(right.shape))]
    if right.dtype.kind not in "iub":
        wide = right.astype(np.float64)
        mantissa = {2: 4, 1: 1}.get(right.dtype.itemsize, 10)
        if size >= FEW:
            found.append(("rounded to half its bits", _coarse(wide, mantissa).astype(right.dtype)))
        found.append(("scaled by 1.01", (wide * 1.01).astype(right.dtype)))
    if right.ndim > 1 and right.shape[0] > 1:
        swapped = right.copy()
        swapped[[0, -1]] = swapped[[-1, 0]]
        found.append(("two rows swapped", swapped))
    return found


def _coarse(data: Array, mantissa: int) -> Array:
    """Rounded to that many bits after the leading one."""
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(data)
        rounded: Array = np.ldexp(np.round(fraction * 2.0 ** (mantissa + 1)) / 2.0 ** (mantissa + 1), exponent)
    return np.where(np.isfinite(data), rounded, data)
