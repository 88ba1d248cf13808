"""The journal of a run: one file of JSON lines, only ever appended to, from which everything else is derived.

Knows lines, files and locks, and how a trial is written down and read back; nothing of what events mean (`run.py`). An
event is flushed when it is written and synced now and then. A torn last line, as a killed process or a full disk leaves
it, is cut off before anything is appended. `docs/journal.md` has every event with its fields.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tunesmith.build import Kernel
from tunesmith.errors import UsageError
from tunesmith.task import Setting
from tunesmith.trial import Cell, Status, Timing, Trial

NAME = "journal.jsonl"
FORMAT = 1
SYNC_S = 2.0  # at most so much of a run is lost when the machine stops, not only the process
LOG_KEPT = 4000  # characters of a compiler's output

Event = dict[str, Any]


class Journal:
    """A run's journal, held by one process."""

    def __init__(self, folder: Path) -> None:
        """Open for appending, and keep others out; the journal of a new run is made here."""
        self.folder, self.path = folder, folder / NAME
        self._synced_at = time.monotonic()
        try:
            self._file: BinaryIO = self.path.open("a+b")
            _lock(self._file, folder)
            _cut_torn_line(self._file)
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be written: {error.strerror}", hint="--run DIR chooses a folder"
            ) from None

    def write(self, event: Event, *, sync: bool = False) -> None:
        """Append one event. Raises `UsageError` where the disk does not take it; what was written before is safe."""
        line = json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            self._file.write(line)
            self._file.flush()
            if sync or time.monotonic() - self._synced_at > SYNC_S:
                os.fsync(self._file.fileno())
                self._synced_at = time.monotonic()
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.close()
            why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
            raise UsageError(f"{self.path} cannot be written: {why}",
                             hint=f"nothing that it holds is lost; then: tunesmith resume {self.folder}") from None  # fmt: skip

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._file.flush()
            os.fsync(self._file.fileno())
        with contextlib.suppress(OSError):
            self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def plain(value: Any) -> Any:
    """A value as JSON has it: whole numbers and figures of any library as Python's, what is infinite or no number as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def is_begun(folder: Path) -> bool:
    """Whether a folder holds a run of which anything was written down."""
    try:
        return b"\n" in (folder / NAME).read_bytes()
    except OSError:
        return False


def read_events(folder: Path) -> Iterator[Event]:
    """The events of a run, up to a line that is torn. Needs no lock: a run that goes on can be read."""
    try:
        lines = (folder / NAME).read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{folder} is no run: {NAME}: {error.strerror}", hint="tunesmith runs lists them") from None
    for number, line in enumerate(lines[:-1], 1):
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or "event" not in event:
            raise UsageError(f"{folder / NAME}:{number} is no event; the journal was changed by something else")
        yield event


def _lock(file: BinaryIO, folder: Path) -> None:
    holder = folder / "held-by"
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        by = ""
        with contextlib.suppress(OSError):
            by = f" ({holder.read_text().strip()})"
        raise UsageError(f"{folder} is being worked on by another process{by}", hint="wait for it, or end it") from None
    with contextlib.suppress(OSError):
        holder.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")


def _cut_torn_line(file: BinaryIO) -> None:
    size = file.seek(0, os.SEEK_END)
    if not size:
        return
    file.seek(max(0, size - 1))
    if file.read(1) == b"\n":
        return
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)


# --- trials as JSON ----------------------------------------------------------------------------------------------------


def trial_fields(trial: Trial) -> dict[str, Any]:
    """A trial as JSON; what is empty is left out."""
    fields: dict[str, Any] = {
        "number": trial.number, "template": trial.template, "config": dict(trial.config), "status": str(trial.status),
        "reason": trial.reason, "log": trial.log[-LOG_KEPT:], "twin": trial.twin, "bound": trial.bound, "score": trial.score,
        "seconds": {stage: round(s, 4) for stage, s in trial.seconds.items()}, "identity": trial.identity,
        "cells": {name: _cell_fields(cell) for name, cell in trial.cells.items()},
        "resources": [
            {"dims": dict(setting.dims), "types": dict(setting.types), "kernels": [_kernel_fields(k) for k in kernels]}
            for setting, kernels in trial.resources.items()
        ],
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value not in (None, "", {}, [])}


def trial_from(fields: Mapping[str, Any]) -> Trial:
    """The trial that was written down."""
    resources = {
        Setting(tuple(one["dims"].items()), tuple(one["types"].items())): tuple(Kernel(**k) for k in one["kernels"])
        for one in fields.get("resources", ())
    }
    return Trial(
        fields["number"], fields["template"], fields.get("config", {}), Status(fields["status"]), fields.get("reason", ""),
        fields.get("log", ""), resources, {n: _cell_from(n, c) for n, c in fields.get("cells", {}).items()},
        fields.get("twin"), fields.get("bound"), fields.get("score"), fields.get("seconds", {}), fields.get("identity", ""),
    )  # fmt: skip


def _kernel_fields(kernel: Kernel) -> dict[str, Any]:
    told = ("registers", "spill_bytes", "shared_bytes", "code_bytes")
    fields = {name: getattr(kernel, name) for name in told if getattr(kernel, name)}
    return {"entry": kernel.entry, "symbol": kernel.symbol, **fields}


def _cell_fields(cell: Cell) -> dict[str, Any]:
    fields: dict[str, Any] = {"status": str(cell.status)}
    if cell.timing is not None:
        fields |= {"time_us": cell.timing.time_us, "low_us": cell.timing.low_us, "high_us": cell.timing.high_us}
    told = {
        "reason": cell.reason,
        "error": cell.error,
        "occupancy": cell.occupancy,
        "target_fraction": cell.target_fraction,
    }
    return fields | {name: value for name, value in told.items() if value}


def _cell_from(name: str, fields: Mapping[str, Any]) -> Cell:
    timing = None
    if "time_us" in fields:
        timing = Timing(fields["time_us"], fields["low_us"], fields["high_us"])
    return Cell(
        name, Status(fields["status"]), fields.get("reason", ""), timing, fields.get("error") or 0.0,
        fields.get("occupancy", 0.0), fields.get("target_fraction"),
    )  # fmt: skip
