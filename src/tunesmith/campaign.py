"""A run on a device: from what a user orders to a run and an arena, and from a run's folder to the same again.

The run's folder holds copies of the task, the templates and a strategy of the user's own, and what is worked with are
these copies: the folder can travel, and what happens to the originals later does not matter.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tunesmith.arena import Arena, Live, Recorded
from tunesmith.budget import Budget
from tunesmith.calibrate import calibrate, load
from tunesmith.compiling import Compilers
from tunesmith.device import Device, find_device
from tunesmith.errors import TunesmithError, UsageError
from tunesmith.evaluate import Evaluator
from tunesmith.expression import Expression
from tunesmith.journal import is_begun
from tunesmith.recorded import Recording
from tunesmith.run import Run, copied_task, new_folder
from tunesmith.search import find_strategy
from tunesmith.space import Space
from tunesmith.task import Dim, Task, Workload
from tunesmith.template import Template


@dataclass(frozen=True)
class Order:
    """What a user asks of a search."""

    task: Path | None  # None where a recording answers
    templates: Sequence[Path] = ()
    strategy: str = "default"
    device: str | None = None
    baseline: str | None = None
    budget: Sequence[str] = ()
    seed: int = 0
    run: Path | None = None
    l2: str | None = None  # "cold" or "warm", instead of what each argument says
    threads: int | None = None
    max_kernels: int = 4
    runs: Path = field(default=Path("runs"))


@contextlib.contextmanager
def started(order: Order) -> Iterator[tuple[Run, Arena]]:
    """A new run for this order, and where it happens."""
    if Budget.parse(order.budget).calls is not None:
        raise UsageError("--budget in calls: a search asks no model", hint="5m, 90s, 200trials or 60device-s")
    find_strategy(order.strategy)
    with _recorded(order) if str(order.device).startswith("recorded:") else _live(order) as begun:
        yield begun


@contextlib.contextmanager
def _recorded(order: Order) -> Iterator[tuple[Run, Arena]]:
    recording = Recording.named(order.device or "")
    folder = order.run or new_folder(order.runs, recording.name)
    arena = Recorded(recording)
    with _room(folder):
        run = Run.create(folder, _begin(order, folder, arena, None))
    with _closing(run):
        yield run, arena


@contextlib.contextmanager
def _live(order: Order) -> Iterator[tuple[Run, Arena]]:
    if order.task is None:
        raise UsageError("a search needs a task", hint="tunesmith search TASK [TEMPLATE...], or --device recorded:FILE")
    task = Task.load(order.task)
    device = find_device(order.device, threads=order.threads)
    try:
        sources = _sources(order, task, device)
        _must_know(order.baseline, task, device)
        folder = order.run or new_folder(order.runs, task.name)
        check_seed = secrets.randbits(48)
        with contextlib.ExitStack() as held:
            with _room(folder):  # wrong input is told before anything is left behind
                copied_task(task, folder)
                copies = [_copied(path, folder / "templates") for path in sources]
                names = [copy.name for copy in copies]
                arena = held.enter_context(_arena(folder, device, names, l2=order.l2, check_seed=check_seed))
                begin = _begin(order, folder, arena, task) | {"check_seed": check_seed}
                run = held.enter_context(_closing(Run.create(folder, begin)))
            yield run, arena
    finally:
        device.close()


def _must_know(baseline: str | None, task: Task, device: Device) -> None:
    listed = [*(path.stem for path in task.files("baselines", device.language)), *task.baselines]
    if baseline is not None and baseline not in listed:
        raise UsageError(f"--baseline {baseline}: no such baseline; known: {', '.join(listed) or 'none'}")


@contextlib.contextmanager
def resumed(folder: Path) -> Iterator[tuple[Run, Arena]]:
    """A run to go on with, where it was begun or on a device of the same kind."""
    with _closing(Run.resume(folder)) as run:
        begin = run.begin
        if begin["device"].startswith("recorded:"):
            yield run, Recorded(Recording.named(begin["device"]))
            return
        device = find_device(begin["device"], threads=begin["threads"])
        try:
            _same_device(run, device)
            files = [t["file"] for t in begin["templates"]]
            with _arena(folder, device, files, l2=begin["l2"], check_seed=begin["check_seed"]) as arena:
                yield run, arena
        finally:
            device.close()


@contextlib.contextmanager
def _closing(run: Run) -> Iterator[Run]:
    try:
        yield run
    finally:
        run.close()


@contextlib.contextmanager
def _room(folder: Path) -> Iterator[None]:
    """A folder for a run; one that never began is taken away again."""
    held = folder.exists()
    if is_begun(folder):
        raise UsageError(f"{folder} holds a run already", hint=f"tunesmith resume {folder}, or another --run DIR")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}", hint="--run DIR chooses a folder") from None
    try:
        yield
    except (OSError, shutil.Error) as error:
        _leave(folder, held)
        raise UsageError(f"{folder} cannot be filled: {error}", hint="--run DIR chooses a folder") from None
    except TunesmithError:
        _leave(folder, held)
        raise


def _leave(folder: Path, held: bool) -> None:
    if not held and not is_begun(folder):
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _arena(folder: Path, device: Device, files: Sequence[str], *, l2: str | None, check_seed: int) -> Iterator[Live]:
    task = with_residency(Task.load(folder / "task"), l2)
    with Compilers(environment=device.environment) as compilers:
        known = (load(device) or calibrate(device, compilers)) if device.runs else None
        evaluator = Evaluator(task, device, compilers, seed=check_seed, calibration=known)
        evaluator.must_serve()
        yield Live.of(evaluator, [Template.load(folder / "templates" / name) for name in files])


def with_residency(task: Task, residency: str | None) -> Task:
    """The task with all arguments cold, or all warm, in the cache."""
    if residency is not None:
        task.arguments = [replace(a, residency=residency) for a in task.arguments]
    return task


def _sources(order: Order, task: Task, device: Device) -> list[Path]:
    """The templates that take part: those given, else the task's own, else its baselines as they are."""
    given = [Path(p) for p in order.templates]
    for path in given:
        if path.is_dir() or not path.exists():
            raise UsageError(f"{path} is no file" if path.is_dir() else f"no such file: {path}")
        if Template.load(path).language != device.language:
            raise UsageError(f"{path} is not {device.language}, which {device.name} takes", hint="choose with --device")
    found = given or task.files("templates", device.language) or task.files("baselines", device.language)
    if not found:
        raise UsageError(
            f"the task {task.name} has no {device.language} files", hint=f"put one into {order.task}/templates"
        )
    names = [path.stem for path in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two templates named {twice[0]}", hint="the result names them by their files' names")
    return found


def _copied(path: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return Path(shutil.copy(path, folder / path.name))


def _same_device(run: Run, device: Device) -> None:
    here, there = device.facts.get("name"), run.device.get("name")
    if run.device and here != there:
        raise UsageError(f"{run.name} was measured on {there}; here is {here}: times of two devices cannot be mixed",
                         hint="start a new run here")  # fmt: skip


# --- what a journal says first -----------------------------------------------------------------------------------------


def _begin(order: Order, folder: Path, arena: Arena, task: Task | None) -> dict[str, Any]:
    named = order.device or (arena.device.name if isinstance(arena, Live) else "")
    return {
        "version": version("tunesmith"), "task": task.name if task else next(iter(arena.spaces)),
        "task_folder": str(order.task) if order.task else None, "task_digest": digest_of(folder / "task"),
        "device": named, "strategy": _strategy(order.strategy, folder), "seed": order.seed,
        "budget": list(order.budget), "baseline": order.baseline, "max_kernels": order.max_kernels,
        "score": task.score if task else "speedup",
        "batch_invariant": bool(task and task.batch_invariant), "l2": order.l2, "threads": order.threads,
        "templates": [_template(name, space) for name, space in arena.spaces.items()],
        "workloads": [_workload(task, w) for w in arena.workloads],
    }  # fmt: skip


def _strategy(name: str, folder: Path) -> str:
    """The strategy's name; a file is copied into the run's folder."""
    path, colon, attribute = name.partition(":")
    if not path.endswith(".py"):
        return name
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, folder / Path(path).name)
    return f"{Path(path).name}{colon}{attribute}"


def _template(name: str, space: Space) -> dict[str, Any]:
    count, template = space.count(), space.template
    return {
        "name": name, "file": template.file.name if template.file else None,
        "digest": hashlib.sha256(template.source.encode()).hexdigest()[:16], "parameters": len(template.parameters),
        "cartesian": space.cartesian, "legal": count.value, "exact": count.exact,
        "when": _joined(space.predicates), "default": dict(template.default),
    }  # fmt: skip


def _joined(predicates: Mapping[str, Expression]) -> str | None:
    texts = [e.text for e in predicates.values()]
    return " and ".join(f"({text})" for text in texts) if len(texts) > 1 else (texts[0] if texts else None)


def _workload(task: Task | None, workload: Workload) -> dict[str, Any]:
    """A workload as the table sees it: its setting, the dims that are matched exactly, and where it lies in a range."""
    dims = dict(workload.dims)
    told: dict[str, Any] = {
        "name": workload.name,
        "weight": workload.weight,
        "dims": dims,
        "types": dict(workload.types),
    }
    if task is None:
        ranged = next(iter(dims), None)
        setting: dict[str, Any] = {"dims": {}, "types": {}}
        exact: dict[str, int] = {}
        at = dims[ranged] if ranged else 0
    else:
        one = task.setting(workload)
        setting = {"dims": dict(one.dims), "types": dict(one.types)}
        dynamic = task.dims_of_kind(Dim.DYNAMIC)
        ranged = task.ranged or (dynamic[0] if dynamic else None)
        span = Expression.parse(ranged or "0")
        exact = {**setting["dims"], **{n: dims[n] for n in dynamic if n not in span.names}}
        at = span.integer(dims)
    return told | {"setting": setting, "exact": exact, "ranged": {"name": ranged, "value": at}}


def digest_of(folder: Path) -> str | None:
    """Of all files in a folder, by name and content."""
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
