"""The null device: builds really compile for a named architecture and every gate applies, but nothing is run.

What was not run has neither outputs nor times, so a session refuses to launch: no check passes and no time exists by
accident. Two exceptions, both asked for by name: `sm_90:invented` gives invented times (a function of the launches that
means nothing, for tests of what comes after timing), and a test may give Python in place of the kernels.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tunesmith.backends.session import Bytes, DeviceError, Placed
from tunesmith.build import Build
from tunesmith.errors import UsageError, unknown
from tunesmith.launch import ResolvedLaunch
from tunesmith.limits import Limits, named

ARCH = "sm_90"
NOT_RUN = "not run: null device"
INVENTED = "invented, not run: null device"


def read_name(text: str) -> tuple[str, bool]:
    """The architecture, and whether times are invented: what stands behind the colon of `null:sm_80:invented`."""
    arch, colon, mode = text.partition(":")
    if colon and mode != "invented":
        raise UsageError(unknown("null device", mode, ["invented"]), hint="null, null:sm_80 or null:sm_80:invented")
    return named(arch or ARCH).arch, bool(colon)


def invented_us(build: Build, launches: Sequence[ResolvedLaunch], limits: Limits) -> float:
    """A time that nothing took: full waves of blocks around 256 threads come out short, equal candidates equal."""
    total = 0.0
    for launch in launches:
        if launch.blocks:
            waves = math.ceil(launch.blocks * launch.threads / (limits.sms * limits.max_threads_per_sm))
            total += 2.0 + waves * (1.0 + 0.25 * abs(math.log2(launch.threads / 256)))
    digest = hashlib.sha256(repr((build.fingerprint or build.key, launches)).encode()).digest()
    return total * (1.0 + digest[0] / 5120)  # up to 5 %, so that few candidates tie


class NullSession:
    """Memory in host arrays, an architecture's limits, and no kernels but those that a test gives."""

    rotation_bytes = 0

    def __init__(self, name: str = "", kernels: Callable[[Placed], None] | None = None) -> None:
        arch, self.invents = read_name(name)
        self.limits = named(arch)
        self.kernels = kernels
        self._us = 0.0

    # -- memory --

    def allocate(self, size: int) -> Bytes:
        return np.zeros(max(size, 1), np.uint8)

    def free(self, buffer: Bytes) -> None:
        pass

    def write(self, buffer: Bytes, data: Bytes, offset: int = 0) -> None:
        buffer[offset : offset + data.nbytes] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    def read(self, buffer: Bytes, size: int, offset: int = 0) -> Bytes:
        return np.array(buffer[offset : offset + size])

    def fill(self, buffer: Bytes, byte: int, size: int, offset: int = 0) -> None:
        buffer[offset : offset + size] = byte

    def copy(self, to: Bytes, source: Bytes, size: int) -> None:
        to[:size] = source[:size]

    def pointer(self, buffer: Bytes, offset: int) -> Bytes:
        return buffer[offset:]

    # -- launching --

    def run(self, placed: Sequence[Placed]) -> None:
        if self.kernels is None:
            raise DeviceError(NOT_RUN)
        for one in placed:
            for memory, size in one.zeroed:
                memory[:size] = 0
            self.kernels(one)

    def run_fresh(self, placed: Sequence[Placed]) -> None:
        self.run(placed)

    def synchronize(self) -> None:
        pass

    def prepare(self, batch: Sequence[Sequence[Placed]]) -> Callable[[], None]:
        if self.kernels is None and not self.invents:
            raise DeviceError(NOT_RUN)

        def replay() -> None:
            for placed in batch:
                if self.kernels is not None:
                    self.run(placed)
                if placed:
                    self._us += invented_us(placed[0].build, [one.launch for one in placed], self.limits)

        return replay

    def prepare_callable(self, calls: Sequence[Callable[[], Any]], capture: bool) -> Callable[[], None]:
        raise DeviceError(NOT_RUN)

    def flush(self) -> None:
        pass

    def touch(self, buffer: Bytes, size: int) -> None:
        pass

    def time(self, before: Callable[[], None], replay: Callable[[], None]) -> float:
        before()
        self._us = 0.0
        replay()
        return self._us

    def forget(self) -> None:
        pass

    # -- what it is --

    def describe(self) -> dict[str, Any]:
        return {"name": f"null ({self.limits.name})", "arch": self.limits.arch, "runs": False, "invents": self.invents}

    def close(self) -> None:
        pass
