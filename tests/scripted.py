"""A device in this process whose kernels are Python functions: what the real worker, checker and play-off do, at once.

A kernel gets `Launched`: arrays by name over the real buffers, guards within reach, and `state`, which lives as long as
the program that a backend has loaded. `deaf` drops parts of the worker's answers: how a test shows what a gate is for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tunesmith import worker
from tunesmith.backends.null import NullSession
from tunesmith.backends.session import Placed
from tunesmith.build import BUILT, Build, Kernel
from tunesmith.checker import Checker
from tunesmith.evaluate import Evaluator
from tunesmith.launch import Pointer, ResolvedLaunch, ResolvedWorkspace
from tunesmith.messages import Candidate, Open
from tunesmith.process import Answer, Died
from tunesmith.task import Input, Output, Task, Workload, dynamic, static


@dataclass
class Launched:
    """What a kernel sees: bytes from each pointer to the end of its buffer."""

    pointers: dict[str, Any]
    launch: ResolvedLaunch
    state: dict[Any, Any]

    def floats(self, name: str, count: int, start: int = 0) -> Any:
        """`count` floats from a pointer, moved by `start` of them (before it, too)."""
        data = self.pointers[name]
        address = data.__array_interface__["data"][0] + 4 * start
        return np.frombuffer((np.ctypeslib.ctypes.c_char * (4 * count)).from_address(address), np.float32)

    def address(self, name: str) -> int:
        return int(self.pointers[name].__array_interface__["data"][0])

    @property
    def timed(self) -> bool:
        """Whether this is a timing: its payloads begin at a multiple of 4096 in a buffer, a check's do not."""
        return self.pointers["x"].size % 256 == 0


Script = Callable[[Launched], None]


class ScriptedSession(NullSession):
    """The null session with kernels, and times that follow from how much a kernel says it did."""

    def __init__(self, kernels: dict[str, Script], *, warp: int = 32) -> None:
        super().__init__("sm_90", self._call)
        self.limits = replace(self.limits, warp=warp)
        self.scripts = kernels
        self.state: dict[Any, Any] = {}
        self.launched = 0

    def _call(self, placed: Placed) -> None:
        self.launched += 1
        self.scripts[placed.launch.entry](Launched(placed.pointers, placed.launch, self.state))

    def run_fresh(self, placed: Sequence[Placed]) -> None:
        kept, self.state = self.state, {}
        try:
            self.run(placed)
        finally:
            self.state = kept

    def time(self, before: Callable[[], None], replay: Callable[[], None]) -> float:
        before()
        count = self.launched
        replay()
        return 100.0 * (self.launched - count) * self.state.get("speed", 1.0)

    def forget(self) -> None:
        self.state = {}


class ScriptedDevice:
    """What a `Checker` needs of a device, and a `Child` of itself."""

    runs, invents, language, index, alive = True, False, "opencl", 0, True
    facts: ClassVar[dict[str, Any]] = {}

    def __init__(self, kernels: dict[str, Script], *, cpu: bool = False, deaf: Iterable[str] = ()) -> None:
        self.session = ScriptedSession(kernels, warp=1 if cpu else 32)
        self.session.rotation_bytes = 1 << 14
        self.kind = "cpu" if cpu else "gpu"
        self.limits = self.session.limits
        self.deaf = set(deaf)
        self.said: list[Any] = []
        self.heard: list[Answer] = []
        self.restarts = 0
        self._cases: dict[str, Any] = {}
        worker.HELD.session = self.session
        worker.HELD.cases, worker.HELD.rotations = {}, {}

    def load(self, case: Any) -> None:
        self._cases[case.key] = case
        worker.handle(case)
        self.said.append(case)

    def has(self, key: str) -> bool:
        return key in self._cases

    def restart(self) -> None:
        self.restarts += 1

    def ask(self, message: Any, timeout: float) -> Answer:
        if isinstance(message, Open):
            return Answer({})
        self.said.append(message)
        try:
            answer = worker.handle(message)
        except DeadError as died:
            raise Died(str(died)) from None
        fields, parts = answer if isinstance(answer, tuple) else (answer, ())
        fields = json.loads(json.dumps(fields))
        if "problems" in self.deaf and "problems" in fields:
            fields["problems"] = []
        for output in fields["outputs"] if "poison" in self.deaf and isinstance(message, worker.RunCheck) else ():
            output["unwritten"] = output["differing"] = 0
        self.heard.append(Answer(fields, parts))
        return self.heard[-1]

    # as a child of itself

    def fresh_process(self) -> ScriptedDevice:
        return self

    def open_message(self) -> Open:
        return Open("null", 0)

    def jails(self, message: Any) -> bool:
        return False

    def kill(self) -> None:
        worker.HELD.cases, worker.HELD.rotations = {}, {}
        self._cases.clear()

    def __enter__(self) -> ScriptedDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class DeadError(Exception):
    """What a script raises to take its process down."""


def linear_task(**changes: Any) -> Task:
    """out = 2 x + 1, in 7 rows of 33."""
    fields: dict[str, Any] = {
        "dims": {"T": dynamic, "d": static},
        "arguments": [Input("x", "f32[T, d]"), Output("out", "f32[T, d]")],
        "workloads": [Workload("w", T=7, d=33)],
        "rows": "T",
    }
    task = Task("linear", **{**fields, **changes})
    task.reference(lambda x: 2 * x + 1)
    return task


COUNT = 7 * 33


def linear(k: Launched) -> None:
    k.floats("out", COUNT)[:] = 2 * k.floats("x", COUNT) + 1


def candidate(entry: str = "linear", workspaces: Sequence[ResolvedWorkspace] = ()) -> Candidate:
    build = Build(entry, BUILT, kernels=(Kernel(entry, entry),), fingerprint=entry)
    launch = ResolvedLaunch(entry, (1, 1, 1), (64, 1, 1), (Pointer("x"), Pointer("out")))
    return Candidate(build, (launch,), tuple(workspaces))


def evaluator(device: ScriptedDevice, task: Task) -> Evaluator:
    """An evaluator that has no compilers: for candidates made here."""
    return Evaluator(task, device, None, seed=3)  # type: ignore[arg-type]


def checker(device: ScriptedDevice, task: Task) -> Checker:
    return Checker(task, device, 3)  # type: ignore[arg-type]
