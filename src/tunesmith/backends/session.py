"""What a backend can do with a device, in the process that holds it: memory, launches, clocks.

One file per language implements `Session`; everything above it (checking, timing, play-offs) is written once against
these few methods. A session knows buffers and resolved launches, nothing of tasks, templates or what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tunesmith.build import Build
from tunesmith.launch import ResolvedLaunch
from tunesmith.limits import Limits

Bytes = NDArray[np.uint8]


class DeviceError(Exception):
    """The device refused or failed; the message is the driver's word for it."""


@dataclass(frozen=True)
class Placed:
    """A launch with the addresses of its buffers: what a session can run."""

    build: Build
    launch: ResolvedLaunch
    pointers: dict[str, Any]  # name: a buffer of the session, moved by an offset where it has guards
    zeroed: tuple[Any, ...] = ()  # workspaces to be zeroed just before it, as part of what is timed


class Session(Protocol):
    """One open device."""

    limits: Limits
    rotation_bytes: int  # how much memory launches should rotate over to find their data cold

    def allocate(self, size: int) -> Any: ...

    def free(self, buffer: Any) -> None: ...

    def write(self, buffer: Any, data: Bytes, offset: int = 0) -> None: ...

    def read(self, buffer: Any, size: int, offset: int = 0) -> Bytes: ...

    def fill(self, buffer: Any, byte: int, size: int, offset: int = 0) -> None: ...

    def copy(self, to: Any, source: Any, size: int) -> None: ...

    def pointer(self, buffer: Any, offset: int) -> Any:
        """What a kernel is given for the part of a buffer that begins at `offset`."""

    def run(self, placed: Sequence[Placed]) -> None:
        """Launch in order and wait; raises `DeviceError`."""

    def run_fresh(self, placed: Sequence[Placed]) -> None:
        """The same from a newly loaded program, where the device keeps what a program stores beside its buffers."""

    def prepare(self, batch: Sequence[Sequence[Placed]]) -> Callable[[], None]:
        """Make a batch (one sequence of launches per buffer set) ready to be replayed; a call enqueues it all."""

    def prepare_callable(self, calls: Sequence[Callable[[], Any]], capture: bool) -> Callable[[], None]:
        """The same for a user's function, once per buffer set."""

    def flush(self) -> None:
        """Leave the caches without anything that launches use, where rotation alone does not see to that."""

    def touch(self, buffer: Any, size: int) -> None:
        """Read the beginning of a buffer, so that it is in the cache."""

    def time(self, before: Callable[[], None], replay: Callable[[], None]) -> float:
        """Microseconds of one replay, by the device's clock; what `before` enqueues is not counted."""

    def describe(self) -> dict[str, Any]:
        """Name, driver and, where they can be read, clocks, temperature, power and throttle reasons."""

    def close(self) -> None: ...
