"""A device as the rest of the program holds it: what it is, and the disposable process that has it open.

The parent never initialises CUDA or OpenCL itself. If a candidate takes the process down, `Died` says so once, and the
next message finds a fresh process with the same cases loaded.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tunesmith.backends.null import read_name
from tunesmith.build import cache_folder
from tunesmith.errors import MissingError, UsageError, unknown
from tunesmith.limits import Limits
from tunesmith.messages import Case, Forget, Host, Open, RunTime
from tunesmith.process import Answer, Child, Died

START_TIMEOUT_S = 120.0
CASES_BYTES = 8 << 30  # of loaded cases, where the device does not tell its memory
LANGUAGES = {"cuda": "cuda", "opencl": "opencl"}  # of the devices that can be found


class Device:
    """One device by name (`cuda:0`, `opencl:0`). Opens on first use."""

    runs = True  # what is built; where not, nothing is checked
    invents = False  # times, where nothing runs

    def __init__(self, backend: str, index: int, environment: Mapping[str, str] | None = None) -> None:
        self.backend, self.index = backend, index
        self.environment = dict(environment or {})
        self._logs = Path(tempfile.mkdtemp(prefix="tunesmith-device-"))
        weakref.finalize(self, shutil.rmtree, self._logs, ignore_errors=True)
        self._child = self.fresh_process()
        self._cases: dict[str, Case] = {}  # that of the last message last
        self._loaded: set[str] = set()
        self._opened: dict[str, Any] | None = None
        self._jailed = False

    # -- what it is --

    @property
    def name(self) -> str:
        return f"{self.backend}:{self.index}"

    @property
    def language(self) -> str:
        return LANGUAGES[self.backend]

    @property
    def facts(self) -> dict[str, Any]:
        """What the device says of itself: name, driver, clocks where they can be read."""
        return dict(self._open()["device"])

    @property
    def limits(self) -> Limits:
        fields: dict[str, Any] = self._open()["limits"]
        lists: dict[str, Any] = {k: tuple(v) for k, v in fields.items() if isinstance(v, list)}
        return Limits(**(fields | lists))

    @property
    def kind(self) -> str:
        """ "cpu" or "gpu"."""
        return "cpu" if self.backend == "opencl" and self.limits.warp == 1 else "gpu"

    # -- speaking to its process --

    def fresh_process(self) -> Child:
        """A new process for this device, not yet started; for play-offs."""
        return Child("tunesmith.worker:handle", environment=self.environment, folder=self._logs)

    def open_message(self) -> Open:
        return Open(self.backend, self.index)

    def ask(self, message: Any, timeout: float) -> Answer:
        """Send a message about loaded cases; raises `Died` if the process does not live to answer."""
        jailed = self.jails(message)
        if jailed is not self._jailed:
            self._child.kill()
            self._jailed = jailed
        if (used := getattr(message, "case", None)) in self._cases:
            self._cases[used] = self._cases.pop(used)
        self._revive()
        for key, case in self._cases.items():
            if key not in self._loaded:
                self._say(case, START_TIMEOUT_S)
                self._loaded.add(key)
        return self._say(message, timeout)

    def jails(self, message: Any) -> bool:
        """Whether the process that answers this is shut in: on a CPU, unless it runs the user's own functions."""
        arms = message.arms if isinstance(message, RunTime) else (getattr(message, "candidate", None),)
        return self.kind == "cpu" and not any(isinstance(arm, Host) for arm in arms)

    def load(self, case: Case) -> None:
        """Make a case's data known; it reaches the process with the next message. Those not used for longest make room."""
        self._cases.pop(case.key, None)
        self._loaded.discard(case.key)
        left = self._budget_bytes - case.size_bytes - sum(held.size_bytes for held in self._cases.values())
        for key, held in list(self._cases.items()):
            if left >= 0:
                break
            self.drop(key)
            left += held.size_bytes
        self._cases[case.key] = case

    @property
    def _budget_bytes(self) -> int:
        """What loaded cases may take: a quarter of the device's memory, for their buffers in a timing are more."""
        memory = self.facts.get("memory_bytes")
        return memory // 4 if memory else CASES_BYTES

    def has(self, key: str) -> bool:
        return key in self._cases

    def drop(self, key: str) -> None:
        """Free a case's memory."""
        if self._cases.pop(key, None) is not None and key in self._loaded:
            self._loaded.discard(key)
            with contextlib.suppress(Died):
                self._say(Forget(key), 30.0)

    def restart(self) -> None:
        """End the process; the next message finds a fresh one."""
        self._child.kill()

    def close(self) -> None:
        self._child.kill()

    def _open(self) -> dict[str, Any]:
        if self._opened is None:
            self._opened = self._say(self.open_message(), START_TIMEOUT_S).fields
            if "limits" not in self._opened:
                answer, self._opened = self._opened, None
                if answer.get("wrong_input"):
                    raise UsageError(answer["device_error"])
                raise MissingError(f"{self.name} does not open: {answer.get('device_error') or answer.get('error')}",
                                   hint="tunesmith devices lists what is here")  # fmt: skip
        return self._opened

    def _say(self, message: Any, timeout: float) -> Answer:
        self._revive()
        return self._child.ask(message, timeout)

    def _revive(self) -> None:
        if self._opened is not None and not self._child.alive:
            self._loaded.clear()
            self._child.ask(replace(self.open_message(), jailed=self._jailed), START_TIMEOUT_S)


class NullDevice(Device):
    """Everything but running, for an architecture by name (backends/null.py). Never found, only asked for."""

    runs = False

    def __init__(self, which: str = "") -> None:
        self.arch, self.invents = read_name(which)
        super().__init__("null", 0)

    @property
    def name(self) -> str:
        return f"null:{self.arch}" + (":invented" if self.invents else "")

    @property
    def language(self) -> str:
        return "cuda"

    def open_message(self) -> Open:
        return Open("null", self.name.removeprefix("null:"))


def find_device(name: str | None = None, *, threads: int | None = None) -> Device:
    """The device of that name; without one, a GPU through CUDA if there is one, else the first OpenCL device that works."""
    if name is not None:
        backend, _, index = name.partition(":")
        if backend == "null":
            return NullDevice(index)
        if backend == "recorded":
            raise UsageError(f"{name}: recordings answer a search; nothing is built or run there")
        if backend not in LANGUAGES:
            kinds = [*LANGUAGES, "null", "recorded"]
            raise UsageError(unknown("kind of device", backend, kinds), hint="cuda:0, opencl:0, null:sm_90")
        if not (index or "0").isdigit():
            raise UsageError(f"{name!r}: the part after the colon is a number")
        return _make(backend, int(index or 0), threads)
    try:
        return _make("cuda", 0)
    except MissingError:
        return _make("opencl", 0, threads)


def all_devices() -> list[Device | MissingError]:
    """Every device that can be opened; for a backend that has none, why."""
    found: list[Device | MissingError] = []
    for backend in LANGUAGES:
        index = 0
        while True:
            try:
                found.append(_make(backend, index))
            except (MissingError, UsageError) as error:
                if index == 0:
                    found.append(error if isinstance(error, MissingError) else MissingError(str(error)))
                break
            index += 1
    return found


def _make(backend: str, index: int, threads: int | None = None) -> Device:
    environment: Mapping[str, str] = {}
    if backend == "opencl":
        from tunesmith.backends import opencl_runtime

        try:
            runtime = opencl_runtime.find()
        except MissingError as missing:
            command = f"python -m {opencl_runtime.MODULE} --fetch"
            hint = missing.hint.replace(command, "make opencl") if in_checkout() else missing.hint
            raise MissingError(missing.message, hint=hint) from None
        kernels = cache_folder() / "pocl-kernels"  # PoCL's own, so that a launch finds what a compile process linked
        kernels.mkdir(parents=True, exist_ok=True)
        environment = {
            **runtime.environment,
            "POCL_CACHE_DIR": str(kernels),
            "TUNESMITH_RUNTIME": str(runtime.folder or ""),
            **({"POCL_MAX_PTHREAD_COUNT": str(threads)} if threads else {}),
        }
    device = Device(backend, index, environment)
    try:
        assert device.limits
    except Died as died:
        raise MissingError(
            f"{device.name} does not open: {died}", hint="tunesmith devices lists what is here"
        ) from None
    return device


def in_checkout() -> bool:
    """Whether this is a checkout, whose `make opencl` fetches a runtime."""
    makefile = Path(__file__).parents[2] / "Makefile"
    return makefile.is_file() and re.search(r"^opencl:", makefile.read_text(), re.MULTILINE) is not None


def describe(device: Device) -> dict[str, Any]:
    """A device for `--json` and the journal."""
    return {"id": device.name, "kind": device.kind, **device.facts, "limits": asdict(device.limits)}
