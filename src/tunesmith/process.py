"""Child processes that may die: started clean, spoken to in messages, killed without regret.

A child runs one function, `module:function`, over each message it is sent. Messages to a child are pickled; answers are
JSON with binary parts beside it, because a parent must never unpickle what comes from a process that ran foreign code.
A child's environment holds only what it is given. Nothing here knows what the messages mean.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "LANG", "HOME", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "OCL_ICD_VENDORS",
             "POCL_CACHE_DIR", "POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT", "TUNESMITH_CACHE")  # fmt: skip
OUTPUT_KEPT = 4000  # characters of a dead child's output
FILE_BYTES = 1 << 30  # that a child may write to any file, its output among them
FIELDS_BYTES, PART_BYTES, PARTS = 64 << 20, 8 << 30, 10_000  # of an answer, at most
ANSWER_SECONDS = 60.0  # from an answer's first byte to its last


@dataclass(frozen=True)
class Answer:
    """What a child said: a JSON object, and the binary parts it came with."""

    fields: dict[str, Any]
    parts: tuple[bytes, ...] = ()


class Died(Exception):
    """A child ended, or was ended, before it answered; `hung` where it ran out of time."""

    def __init__(self, reason: str, *, hung: bool = False) -> None:
        super().__init__(reason)
        self.hung = hung


class Child:
    """One child process and the pipe to it. It starts on the first message."""

    def __init__(
        self, function: str, *, environment: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self.function = function
        self.environment = clean_environment(environment)
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._output: Path | None = None
        self.busy_since: float | None = None

    @property
    def pipe(self) -> Connection:
        assert self._pipe is not None
        return self._pipe

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, message: Any) -> None:
        """Send one message; the answer comes through `receive`."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        self.busy_since = time.monotonic()
        try:
            self.pipe.send_bytes(pickle.dumps(message, protocol=5))
        except OSError:
            self._die()

    def receive(self, timeout: float) -> Answer:
        """Wait for the answer, or raise `Died`; a child that is late is killed, so is one whose answer is none."""
        if not self.pipe.poll(max(0.0, timeout)):
            self.kill()
            raise Died(f"no answer within {timeout:.0f} s", hung=True)
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._signal()

        watchdog = threading.Timer(ANSWER_SECONDS, give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            answer = self._read()
        except (EOFError, OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            if late.is_set():
                self.kill()
                raise Died(f"an answer that did not end within {ANSWER_SECONDS:.0f} s", hung=True) from None
            if isinstance(error, EOFError) or "end of file" in str(error):
                self._die()
            said = self._said()
            self.kill()
            raise Died("an answer that cannot be read" + (f": {said}" if said else "")) from None
        finally:
            watchdog.cancel()
        self.busy_since = None
        return answer

    def _read(self) -> Answer:
        fields = json.loads(self.pipe.recv_bytes(FIELDS_BYTES))
        count = fields.pop("parts", 0)
        if not isinstance(fields, dict) or count not in range(PARTS):
            raise ValueError("not an answer")
        return Answer(fields, tuple(self.pipe.recv_bytes(PART_BYTES) for _ in range(count)))

    def ask(self, message: Any, timeout: float) -> Answer:
        self.send(message)
        return self.receive(timeout)

    def kill(self) -> None:
        """End the process and everything it started, now."""
        if self._process is not None:
            self._signal()
            self._process.wait()
            self._process = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        self.busy_since = None

    def _signal(self) -> None:
        with contextlib.suppress(ProcessLookupError, AttributeError):
            os.killpg(self._process.pid, signal.SIGKILL)  # type: ignore[union-attr]

    def _die(self) -> NoReturn:
        process = self._process
        code: int | None = None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(5)
        said = self._said()
        self.kill()
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        raise Died(f"the process ended with {how}" + (f": {said}" if said else ""))

    def _said(self) -> str:
        if self._output is None or not self._output.is_file():
            return ""
        with self._output.open("rb") as file:
            file.seek(max(0, self._output.stat().st_size - OUTPUT_KEPT))
            return file.read(OUTPUT_KEPT).decode(errors="replace").strip()

    def _start(self) -> None:
        self.kill()
        parent_end, child_end = os.pipe(), os.pipe()
        output = subprocess.DEVNULL
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._output = self.folder / f"{self.function.rpartition('.')[2].replace(':', '-')}-{id(self):x}.log"
            output = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        command = [sys.executable, "-P", "-c", _BOOT, self.function, str(child_end[0]), str(parent_end[1])]
        self._process = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            pass_fds=(child_end[0], parent_end[1]), start_new_session=True, cwd=self.folder,
        )  # fmt: skip
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        os.close(child_end[0])
        os.close(parent_end[1])
        if output >= 0:
            os.close(output)
        self._pipe = _Duplex(parent_end[0], child_end[1])

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class _Duplex(Connection):
    """Two one-way pipes as one connection: reads from the first descriptor, writes to the second."""

    def __init__(self, reads: int, writes: int) -> None:
        super().__init__(reads, writable=False)
        self._out = Connection(writes, readable=False)

    def send_bytes(self, buf: Any, offset: int = 0, size: int | None = None) -> None:
        self._out.send_bytes(buf, offset, size)

    def close(self) -> None:
        super().close()
        self._out.close()


_BOOT = "import sys; from tunesmith.process import serve; serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))"


def serve(function: str, reads: int, writes: int) -> None:
    """What a child does: answer messages with the named function until the pipe closes.

    The function gives a dict, or (dict, parts). An exception is answered as {"error": …}: the parent decides.
    """
    module, _, name = function.partition(":")
    incoming, outgoing = Connection(reads, writable=False), Connection(writes, readable=False)
    handle: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    while True:
        try:
            message = pickle.loads(incoming.recv_bytes())
        except EOFError:
            return
        try:
            answer = handle(message)
        except Exception as error:  # noqa: BLE001  the boundary: whatever went wrong becomes data
            answer = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        fields, parts = answer if isinstance(answer, tuple) else (answer, ())
        outgoing.send_bytes(json.dumps({**fields, "parts": len(parts)}).encode())
        for part in parts:
            outgoing.send_bytes(part)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The few variables that a child needs, and none of the secrets that a shell holds."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    package = str(Path(__file__).resolve().parent.parent)
    return {**kept, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1", **(extra or {})}


def ready(children: Iterable[Child], timeout: float) -> list[Child]:
    """The children that have something to say (or have died), waiting up to `timeout` seconds for the first."""
    by_pipe = {child.pipe: child for child in children}
    return [by_pipe[pipe] for pipe in wait(list(by_pipe), timeout)]  # type: ignore[index]
