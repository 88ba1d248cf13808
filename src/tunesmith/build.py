"""One source made into one binary, with what the binary says about itself; kept on disk by content.

Knows programs, builds and the cache; which compiler makes them is a backend's affair. A deterministic failure is kept
like a success. The key covers everything that decides the result: source, entries, options, architecture, the compiler's
version, and every file that the source includes from the user's folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

BUILT, UNSAFE, FAILED, CRASHED, HUNG = "built", "unsafe", "build_failed", "crashed", "hung"
DETERMINISTIC = (BUILT, UNSAFE, FAILED)
FORMAT = 4  # of the cache's entries
INCLUDED = re.compile(
    r'(?:#|%:)(?:[^\S\n]|/\*[^\n]{0,99}?\*/)*+include(?:[^\S\n]|/\*[^\n]{0,99}?\*/)*+[<"]([^<>"\n]+)[>"]'
)
JOINED = re.compile(r"\\[ \t\v\f]*\r?\n")


@dataclass(frozen=True)
class Program:
    """What a compiler is given."""

    language: str
    source: str
    entries: tuple[str, ...]  # kernels, C++ instantiations such as "act<float, 256>" among them
    arch: str  # sm_90a; for OpenCL the device and its driver
    options: tuple[str, ...] = ()
    include: tuple[str, ...] = ()  # folders of the user
    compiler: str = "nvrtc"


@dataclass(frozen=True)
class Kernel:
    """One kernel of a build. What a backend cannot tell is zero."""

    entry: str
    symbol: str
    registers: int = 0  # per thread
    spill_bytes: int = 0
    shared_bytes: int = 0  # static
    code_bytes: int = 0
    cluster: int = 1
    # The size of each in bytes, 0 for local memory; images and samplers by name.
    parameters: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Build:
    """What became of a program."""

    key: str
    status: str
    reason: str = ""
    log: str = ""
    kernels: tuple[Kernel, ...] = ()
    fingerprint: str = ""  # of the machine code: equal code, equal fingerprint
    binary: bytes = field(default=b"", repr=False)
    seconds: float = 0.0
    cached: bool = False

    def kernel(self, entry: str) -> Kernel:
        return next(k for k in self.kernels if k.entry == entry)


def program_key(program: Program, compiler_version: str) -> str:
    """The content address of what this program becomes."""
    included = {name: _digest(path.read_bytes()) for name, path in sorted(_closure(program).items())}
    text = json.dumps([FORMAT, asdict(program), compiler_version, included], sort_keys=True)
    return _digest(text.encode())


def _closure(program: Program) -> dict[str, Path]:
    """Every file of the user's folders that the source includes, directly or not."""
    found: dict[str, Path] = {}
    pending: list[tuple[str, Path | None]] = [(program.source, None)]
    while pending:
        text, beside = pending.pop()
        for name in INCLUDED.findall(JOINED.sub("", text)):
            folders = [*([beside] if beside else []), *map(Path, program.include)]
            path = next((f / name for f in folders if (f / name).is_file()), None)
            if path is not None and str(path) not in found:
                found[str(path)] = path
                pending.append((path.read_text(errors="replace"), path.parent))
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def cache_folder() -> Path:
    """Where everything that can be made again is kept: $TUNESMITH_CACHE, else ~/.cache/tunesmith."""
    return Path(os.environ.get("TUNESMITH_CACHE") or Path.home() / ".cache" / "tunesmith")


class BuildCache:
    """Builds on disk, by key. Entries are written whole or not at all, so that two processes may share a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "builds"

    def get(self, key: str) -> Build | None:
        entry = self._entry(key)
        try:
            fields = json.loads(entry.with_suffix(".json").read_text())
            binary = entry.with_suffix(".bin").read_bytes()
            if fields.pop("digest") != _digest(binary):
                return None  # half an entry is no entry
            return replace(build_from(fields, binary), cached=True)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, build: Build) -> None:
        """Keep a build, if it would come out the same again."""
        if build.status not in DETERMINISTIC:
            return
        entry = self._entry(build.key)
        entry.parent.mkdir(parents=True, exist_ok=True)
        fields = {**build_fields(build), "digest": _digest(build.binary)}
        for suffix, data in ((".bin", build.binary), (".json", json.dumps(fields).encode())):
            handle, temporary = tempfile.mkstemp(dir=entry.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, entry.with_suffix(suffix))

    def _entry(self, key: str) -> Path:
        return self.folder / key[:2] / key


def build_fields(build: Build) -> dict[str, Any]:
    """A build as JSON, without its binary."""
    return {k: v for k, v in asdict(replace(build, binary=b"")).items() if k != "binary"}


def build_from(fields: Mapping[str, Any], binary: bytes) -> Build:
    kernels = tuple(Kernel(**{**k, "parameters": tuple(k["parameters"])}) for k in fields["kernels"])
    return Build(**{**fields, "kernels": kernels, "binary": binary})
