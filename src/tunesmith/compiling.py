"""Compile processes: programs in, builds out, on all cores, in any order; one that crashes or hangs costs one program.

Each process shuts itself in before its first program: no network, no files but the compiler's own and the user's include
folders. Builds come from the cache where it has them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunesmith import jail
from tunesmith.build import CRASHED, HUNG, UNSAFE, Build, BuildCache, Program, build_fields, build_from, program_key
from tunesmith.process import Child, Died, ready
from tunesmith.safety import refuse

TIMEOUT_S = 60.0
MEMORY_BYTES = 16 << 30  # of a compile process, at most
MEMORY_SHARE = 4  # one part in so many of the machine's


@dataclass(frozen=True)
class Job:
    """A program to compile, for a device of its language (OpenCL compiles for one device of one machine)."""

    program: Program
    key: str
    index: int = 0
    native: bool = False  # it will run on the CPU


_SHUT = {"done": False}


def handle(job: Job) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """Compile one program, in a compile process."""
    started = time.monotonic()
    if job.program.language == "cuda":
        from tunesmith.backends import nvrtc

        nvrtc.version(job.program.compiler)
        _shut(job.program, trusted=job.program.compiler != "nvrtc")
        build = nvrtc.compile_program(job.program, job.key)
    else:
        from tunesmith.backends import opencl

        device = opencl.open_device(job.index)
        _shut(job.program, trusted=False)
        build = opencl.compile_program(job.program, job.key, device)
    build = replace(build, seconds=time.monotonic() - started)
    return build_fields(build), (build.binary,)


def _shut(program: Program, *, trusted: bool) -> None:
    if _SHUT["done"] or trusted:
        return
    work = tempfile.mkdtemp(dir=os.getcwd())  # goes with the folder of the pool
    os.environ["TMPDIR"] = os.environ["XDG_CACHE_HOME"] = tempfile.tempdir = work
    runtime = [os.environ.get(name, "") for name in ("OCL_ICD_VENDORS", "TUNESMITH_RUNTIME")]
    read = [*jail.system_folders(), *program.include, *runtime]
    write = [work, os.environ.get("POCL_CACHE_DIR", "")]
    jail.shut(
        read=[r for r in read if r],
        write=[w for w in write if w],
        memory_bytes=min(MEMORY_BYTES, machine_bytes() // MEMORY_SHARE),
    )
    _SHUT["done"] = True


def machine_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Compilers:
    """A pool of compile processes. `submit` programs, then take builds as they finish."""

    def __init__(self, *, processes: int | None = None, cache: BuildCache | None = None, timeout_s: float = TIMEOUT_S,
                 environment: dict[str, str] | None = None) -> None:  # fmt: skip
        self.cache = cache or BuildCache()
        self.timeout_s = timeout_s
        self.processes = count = processes or os.cpu_count() or 1
        logs = Path(tempfile.mkdtemp(prefix="tunesmith-compile-"))
        weakref.finalize(self, shutil.rmtree, logs, ignore_errors=True)
        self._idle = [Child("tunesmith.compiling:handle", environment=environment, folder=logs) for _ in range(count)]
        self._busy: dict[Child, Job] = {}
        self._waiting: deque[Job] = deque()
        self._finished: deque[tuple[str, Build]] = deque()
        self._pending: set[str] = set()

    @property
    def pending(self) -> int:
        """Programs submitted whose builds were not taken yet."""
        return len(self._pending) + len(self._finished)

    def submit(self, program: Program, version: str, *, index: int = 0, native: bool = False) -> str:
        """Queue a program; gives the key under which its build will come. The same program is compiled once."""
        key = program_key(program, version)
        if key in self._pending:
            return key
        trusted = program.language == "cuda" and program.compiler != "nvrtc"  # the user's own nvcc line
        refusal = None if trusted else refuse(program.source, native=native)
        if refusal is not None:
            self._finished.append((key, Build(key, UNSAFE, reason=f"line {refusal.line}: {refusal.reason}")))
            return key
        cached = self.cache.get(key)
        if cached is not None:
            self._finished.append((key, cached))
            return key
        self._pending.add(key)
        self._waiting.append(Job(program, key, index, native))
        self._feed()
        return key

    def take(self, timeout: float) -> tuple[str, Build] | None:
        """The next finished build, waiting up to `timeout` seconds; None where none came."""
        deadline = time.monotonic() + timeout
        while not self._finished and self._busy:
            self._collect(max(0.0, min(deadline - time.monotonic(), 1.0)))
            if time.monotonic() >= deadline:
                break
        return self._finished.popleft() if self._finished else None

    def build(self, program: Program, version: str, **where: Any) -> Build:
        """Compile one program and wait for it."""
        return next(self.build_all([(program, version)], **where))

    def build_all(self, programs: Iterable[tuple[Program, str]], **where: Any) -> Iterator[Build]:
        """Compile programs on all processes; builds come in the order of the programs."""
        keys = [self.submit(program, version, **where) for program, version in programs]
        done: dict[str, Build] = {}
        for key in keys:
            while key not in done:
                taken = self.take(1.0)
                if taken is not None:
                    done[taken[0]] = taken[1]
            yield done[key]

    def _feed(self) -> None:
        while self._idle and self._waiting:
            child, job = self._idle.pop(), self._waiting.popleft()
            try:
                child.send(job)
            except Died as died:
                self._finish(child, job, Build(job.key, CRASHED, reason=str(died)))
                continue
            self._busy[child] = job

    def _collect(self, timeout: float) -> None:
        now = time.monotonic()
        for child in ready(self._busy, timeout):
            job = self._busy.pop(child)
            try:
                answer = child.receive(1.0)
            except Died as died:
                build = Build(job.key, CRASHED, reason=f"the compiler crashed: {died}")
            else:
                if "error" in answer.fields:
                    build = Build(
                        job.key, CRASHED, reason=answer.fields["error"], log=answer.fields.get("traceback", "")
                    )
                else:
                    build = build_from(answer.fields, answer.parts[0])
            self._finish(child, job, build)
        for child, job in list(self._busy.items()):
            if child.busy_since is not None and now - child.busy_since > self.timeout_s:
                child.kill()
                del self._busy[child]
                self._finish(
                    child, job, Build(job.key, HUNG, reason=f"the compiler did not end within {self.timeout_s:.0f} s")
                )

    def _finish(self, child: Child, job: Job, build: Build) -> None:
        self.cache.put(build)
        self._pending.discard(job.key)
        self._finished.append((job.key, build))
        self._idle.append(child)
        self._feed()

    def close(self) -> None:
        for child in (*self._idle, *self._busy):
            child.kill()

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
