"""What must be computed, independent of any kernel: arguments, workloads, an oracle, what counts as right.

A task is trusted code of the user. It knows nothing of templates, devices or timing. Every workload gives every dim and
every type symbol a value; the static dims and the types of a workload together are its `Setting`, the thing that a
build is specialised for.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from tunesmith.argument import Argument
from tunesmith.dtype import ALIASES, DTYPES, Dtype, dtype, is_type
from tunesmith.errors import ExpressionError, TaskError, unknown
from tunesmith.expression import Expression, Undefined
from tunesmith.grammar import FUNCTIONS, LOOKUPS, WORDS
from tunesmith.limits import FACTS
from tunesmith.loading import made_by
from tunesmith.values import Values, values

F = TypeVar("F", bound=Callable[..., Any])
OPTIONS = ("on", "weight", "values", "dims", "types")  # of a workload: what else it is given is a dim or a type
RESERVED = frozenset({*WORDS, *FUNCTIONS, *LOOKUPS, *FACTS, "name", *OPTIONS})


class Dim(StrEnum):
    """How a dim takes part in building and in dispatch."""

    STATIC = "static"  # specialised: a build is made for its value, dispatch matches it exactly
    DYNAMIC = "dynamic"  # known at launch; dispatch ranges over the first one and matches the others exactly
    FREE = "free"  # known at launch; dispatch does not look at it (the size of a page pool)
    NOTE = "note"  # describes the data (a sum of lengths): for bytes, flops and values only, no kernel may ask for it


static, dynamic, free, note = Dim.STATIC, Dim.DYNAMIC, Dim.FREE, Dim.NOTE


class Input(Argument):
    """Read, never written."""

    reads = True


class Output(Argument):
    """Written, never read."""

    writes = True


class InOut(Argument):
    """Read and written in place; its value afterwards counts as an output."""

    reads = True
    writes = True


class Scalar(Argument):
    """A number passed by value, such as an epsilon."""

    reads = True
    is_scalar = True


@dataclass(frozen=True, eq=False, init=False)
class Workload:
    """A named case that the kernel serves: a value for every dim and type, and data of its own where that decides speed."""

    name: str
    dims: Mapping[str, int]
    types: Mapping[str, str]
    weight: float
    values: Mapping[str, Any]  # per argument, instead of what the argument declares
    on: str | None  # "gpu" or "cpu": only there

    def __init__(self, name: str, *, weight: float = 1.0, values: Mapping[str, Any] | None = None, on: str | None = None,
                 dims: Mapping[str, int] | None = None, types: Mapping[str, str] | None = None,
                 **given: int | str | Dtype) -> None:  # fmt: skip
        named_types = {k: v for k, v in given.items() if isinstance(v, str | Dtype)}
        named_dims = {k: v for k, v in given.items() if k not in named_types}
        for word, kind in named_types.items():
            if isinstance(kind, str) and not is_type(kind):
                message = f"workload {name}: {word} = {kind!r} is neither a type nor a whole number"
                hint = f"types: {', '.join(DTYPES)}"
                raise TaskError(f"{message}; known words: {', '.join(OPTIONS)}", hint=hint)
        try:
            all_dims = {k: operator.index(v) for k, v in {**(dims or {}), **named_dims}.items()}  # type: ignore[arg-type]
        except TypeError as error:
            raise TaskError(f"workload {name}: a dim is a whole number ({error})") from None
        all_types = {k: dtype(v).name for k, v in {**(types or {}), **named_types}.items()}
        for key, value in (
            ("name", name), ("weight", weight), ("on", on), ("dims", MappingProxyType(all_dims)),
            ("types", MappingProxyType(all_types)), ("values", MappingProxyType(dict(values or {}))),
        ):  # fmt: skip
            object.__setattr__(self, key, value)


@dataclass(frozen=True, order=True)
class Setting:
    """The static dims and the types that one build is specialised for."""

    dims: tuple[tuple[str, int], ...] = ()
    types: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in (*self.dims, *self.types)) or "any"


@dataclass(frozen=True)
class Cuda:
    """How CUDA sources of this task are compiled. `compiler` is "nvrtc", or a trusted nvcc command line."""

    std: str = "c++17"
    include: tuple[str, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict)
    compiler: str = "nvrtc"


@dataclass(frozen=True)
class OpenCL:
    """How OpenCL sources of this task are compiled."""

    std: str = "CL1.2"
    include: tuple[str, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CallableBaseline:
    """A baseline that is a function over device arrays. An output that it does not name among its parameters it returns."""

    name: str
    function: Callable[..., Any]
    arrays: str  # torch, cupy or numpy
    capture: bool  # its launches may be captured in a CUDA graph


@dataclass(eq=False)
class Task:
    """An operation, what it is asked to do, and how its results are judged."""

    name: str
    _: KW_ONLY
    dims: Mapping[str, Dim | str]
    arguments: Sequence[Argument]
    workloads: Sequence[Workload]
    held_out: Sequence[Workload] = ()
    types: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    bytes_moved: str = "0"
    flops: str = "0"
    rows: str | None = None  # a dim along which outputs are independent: where arguments have it, it is an axis
    ranged: str | None = (
        None  # what dispatch ranges over: a dim or an expression of dims; default the first dynamic one
    )
    align: int = 16
    score: str = "speedup"  # geometric mean of speedups, or "time": the weighted total
    deterministic: bool = True  # False where atomics may reorder sums
    batch_invariant: bool = False  # a row's bits do not depend on how many rows there are
    cuda: Cuda = field(default_factory=Cuda)
    opencl: OpenCL = field(default_factory=OpenCL)
    folder: Path | None = None
    oracle: Callable[..., Any] | None = None
    baselines: dict[str, CallableBaseline] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in self.dims.items():
            if kind not in list(Dim):
                raise TaskError(f"task {self.name}: {name}: " + unknown("kind of dim", str(kind), Dim))
        self.dims = {name: Dim(kind) for name, kind in self.dims.items()}
        listed = {name: (kinds,) if isinstance(kinds, str) else tuple(kinds) for name, kinds in self.types.items()}
        self.types = {name: tuple(dtype(kind).name for kind in kinds) for name, kinds in listed.items()}
        _validate(self)

    # -- declaring --

    def reference(self, function: F) -> F:
        """Declare the oracle: inputs by name in (float64, whole numbers as they are), outputs by name out.

        It takes the arguments and dims that its parameters name. One output may be returned alone, several as a dict; a
        masked array says which elements of a partial output stay untouched.
        """
        if self.oracle is not None:
            raise TaskError(f"task {self.name}: a second reference, {function.__name__}")
        known = {*self.dims, *(a.name for a in self.arguments)}
        for name in inspect.signature(function).parameters:
            if name not in known:
                raise TaskError(
                    f"task {self.name}: the reference asks for {name!r}; " + unknown("argument", name, known)
                )
        self.oracle = function
        return function

    def baseline(self, name: str, *, arrays: str, capture: bool = True) -> Callable[[F], F]:
        """Declare a function over device arrays as something to beat."""
        if arrays not in ("torch", "cupy", "numpy"):
            raise TaskError(unknown("kind of arrays", arrays, ("torch", "cupy", "numpy")))
        if name in self.baselines:
            raise TaskError(f"task {self.name}: two baselines named {name!r}")

        def declare(function: F) -> F:
            self.baselines[name] = CallableBaseline(name, function, arrays, capture)
            return function

        return declare

    @staticmethod
    def load(folder: str | Path) -> Task:
        """Run a task folder's `task.py` (trusted code) and give the `Task` it makes."""
        folder = Path(folder)
        file = (folder / "task.py" if folder.is_dir() else folder).resolve()
        if not file.is_file() or file.suffix != ".py":
            hint = "a task is a folder with a task.py; see docs/write-a-task.md"
            raise TaskError(f"{folder} holds no task.py", hint=hint)
        tasks = made_by(file, Task, module=f"tunesmith_task_{file.parent.name}")
        if len(tasks) != 1:
            raise TaskError(f"{file} makes {len(tasks)} tasks; it must make one")
        (task,) = tasks
        if task.oracle is None:
            raise TaskError(f"task {task.name} has no reference", hint="@task.reference above a function of the inputs")
        task.folder = file.parent
        return task

    # -- asking --

    def argument(self, name: str) -> Argument:
        for argument in self.arguments:
            if argument.name == name:
                return argument
        raise TaskError(unknown("argument", name, [a.name for a in self.arguments]))

    @property
    def outputs(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.writes)

    def dims_of_kind(self, *kinds: Dim) -> tuple[str, ...]:
        return tuple(name for name, kind in self.dims.items() if kind in kinds)

    def setting(self, workload: Workload) -> Setting:
        """The static dims and types that a build for this workload is specialised for."""
        statics = self.dims_of_kind(static)
        return Setting(tuple((n, workload.dims[n]) for n in statics), tuple((n, workload.types[n]) for n in self.types))

    def settings(self, workloads: Sequence[Workload] | None = None) -> tuple[Setting, ...]:
        """The distinct settings of these workloads, in their order."""
        return tuple(dict.fromkeys(self.setting(w) for w in (self.workloads if workloads is None else workloads)))

    def values_of(self, argument: Argument, workload: Workload) -> Values:
        """What the argument's elements may be in this workload."""
        return values(workload.values.get(argument.name, argument.values))

    def align_of(self, argument: Argument) -> int:
        return argument.align or self.align

    def files(self, kind: str, language: str) -> list[Path]:
        """The task folder's `baselines` or `templates` in a language."""
        suffix = {"cuda": ".cu", "opencl": ".cl"}[language]
        return sorted((self.folder / kind).glob(f"*{suffix}")) if self.folder else []


# --- checking what was declared ----------------------------------------------------------------------------------------


def _validate(task: Task) -> None:
    where = f"task {task.name}"
    _validate_names(task, where)
    if not task.workloads:
        raise TaskError(f"{where}: no workloads", hint='workloads=[Workload("decode", T=16, ...)]')
    if not task.outputs:
        raise TaskError(f"{where}: no argument is written; declare an Output or an InOut")
    if task.score not in ("speedup", "time"):
        raise TaskError(f"{where}: " + unknown("score", task.score, ("speedup", "time")))
    if task.rows is not None and task.rows not in task.dims:
        raise TaskError(f"{where}: rows: " + unknown("dim", task.rows, task.dims))
    if task.batch_invariant:
        _validate_invariance(task, f"{where}: batch_invariant")
    for argument in task.arguments:
        _validate_argument(task, argument, f"{where}, argument {argument.name}")
    for what, text in (("bytes_moved", task.bytes_moved), ("flops", task.flops), ("ranged", task.ranged or "0")):
        try:
            expression = Expression.parse(text)
        except ExpressionError as error:
            raise TaskError(f"{where}: {what}: {error.message}", hint=error.hint) from None
        if extra := expression.names - {*task.dims}:
            raise TaskError(f"{where}: {what}: " + unknown("dim", min(extra), task.dims))
        for function, name in sorted(expression.lookups):
            known = {*task.types, *(a.name for a in task.arguments)}
            if not (name in known or (function == "sizeof" and is_type(name))):
                raise TaskError(f"{where}: {what}: {function}({name}): " + unknown("argument or type", name, known))
    for workload in (*task.workloads, *task.held_out):
        _validate_workload(task, workload, f"{where}, workload {workload.name}")


def _validate_invariance(task: Task, where: str) -> None:
    if task.rows is None or task.dims[task.rows] is static:
        raise TaskError(f"{where} needs rows, a dim that is not static", hint='rows="T"')
    if not any(axis.text.strip() == task.rows for output in task.outputs for axis in output.array.axes):
        raise TaskError(f"{where}: no output has the axis {task.rows}")
    if not task.deterministic:
        raise TaskError(f"{where} and deterministic=False: what moves by itself is never the same")


def _validate_names(task: Task, where: str) -> None:
    arguments = [a.name for a in task.arguments]
    for what, listed in (("argument", arguments), ("workload", [w.name for w in (*task.workloads, *task.held_out)])):
        if twice := {n for n in listed if listed.count(n) > 1}:
            raise TaskError(f"{where}: two {what}s named {min(twice)!r}")
    for name in (*task.dims, *task.types, *arguments):
        if name in RESERVED:
            raise TaskError(f"{where}: {name!r} has a meaning of its own and cannot name a dim, a type or an argument")
    for name in task.types:
        if name in DTYPES or name in ALIASES:
            raise TaskError(f"{where}: the type symbol {name!r} is the name of a type")
    if clash := ({*arguments} & {*task.dims}) | ({*task.types} & {*arguments, *task.dims}):
        raise TaskError(f"{where}: {min(clash)!r} names two things; dims, types and arguments share one scope")


def _validate_argument(task: Task, argument: Argument, where: str) -> None:
    symbol = argument.array.type in task.types
    if not symbol and argument.array.type not in DTYPES and argument.array.type not in ALIASES:
        raise TaskError(f"{where}: " + unknown("type", argument.array.type, (*DTYPES, *task.types)))
    whole = not symbol and not dtype(argument.array.type).is_float
    given = argument.values is not None or all(argument.name in w.values for w in (*task.workloads, *task.held_out))
    if argument.reads and (argument.is_scalar or whole) and not given:
        kind = "a scalar" if argument.is_scalar else "an array of whole numbers"
        raise TaskError(
            f"{where}: {kind} needs values", hint="values=1e-6, values=Range(0, 'P - 1'), or a function of a Draw"
        )
    if argument.align is not None and (argument.align < 1 or argument.align & (argument.align - 1)):
        raise TaskError(f"{where}: align={argument.align} is not a power of two")
    values(argument.values)
    if argument.writes:
        argument.judged_by({name: kinds[0] for name, kinds in task.types.items()})
    for axis in argument.array.axes if task.rows else ():
        if task.rows in axis.names and axis.text.strip() != task.rows:
            hint = "rows: outputs along this dim are independent; an argument has it as an axis, or not at all"
            raise TaskError(f"{where}: the axis {axis.text!r} is not one entry per row of {task.rows}", hint=hint)


def _validate_workload(task: Task, workload: Workload, where: str) -> None:
    for kind, given, wanted in (("dim", workload.dims, task.dims), ("type", workload.types, task.types)):
        if missing := [name for name in wanted if name not in given]:
            raise TaskError(f"{where}: no value for the {kind} {missing[0]!r}")
        if extra := [name for name in given if name not in wanted]:
            raise TaskError(f"{where}: " + unknown(kind, extra[0], wanted))
    for name, size in workload.dims.items():
        if size < 0:
            raise TaskError(f"{where}: {name} = {size}; a dim is zero or more")
    for name, kind in workload.types.items():
        if kind not in task.types[name]:
            raise TaskError(f"{where}: {name} = {kind!r} is not among {', '.join(task.types[name])}")
    if not workload.weight > 0:
        raise TaskError(f"{where}: weight {workload.weight} is not above zero")
    if workload.on not in (None, "gpu", "cpu"):
        raise TaskError(f"{where}: on: " + unknown("kind of device", str(workload.on), ("gpu", "cpu")))
    for name, declared in workload.values.items():
        if not task.argument(name).reads:
            raise TaskError(f"{where}: values for {name}, which is only written")
        values(declared)
    for argument in task.arguments:
        _validate_layout(argument, workload, where)


def _validate_layout(argument: Argument, workload: Workload, where: str) -> None:
    try:
        shape, strides = argument.shape(workload.dims), argument.strides(workload.dims)
    except Undefined as error:
        raise TaskError(f"{where}: the shape of {argument.name}, {argument.spec!r}: {error}") from None
    if any(n < 0 for n in shape):
        raise TaskError(f"{where}: {argument.name} has the shape {shape}")
    reach = 0  # the farthest element of the axes seen so far, smallest stride first
    for stride, length in sorted(zip(strides, shape, strict=True)):
        if length > 1 and stride <= reach:
            raise TaskError(
                f"{where}: {argument.name} has the strides {strides} for the shape {shape}: elements overlap"
            )
        reach += stride * max(0, length - 1)
