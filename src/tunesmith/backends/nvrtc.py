"""CUDA source to cubin: NVRTC, or the user's own nvcc line. Needs no driver and no GPU.

Runs inside a compile process, and once in a device's own for what flushes its cache. NVRTC knows no host headers, so a
folder of small shims comes last on the include path, after the user's folders and CUDA's own.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith.backends.cubin import CubinKernel, code_fingerprint, read_cubin
from tunesmith.build import BUILT, FAILED, Build, Kernel, Program
from tunesmith.errors import MissingError

SHIMS = Path(__file__).with_name("shims")
SPILLS = re.compile(r"Function properties for (\S+)\s+.*?(\d+) bytes spill stores", re.DOTALL)
NOWHERE = "/candidate/"  # where a source pretends to lie: quoted includes are also looked up beside it
INSTALL = "pip install 'tunesmith[cuda]'"


@functools.cache
def header_folders() -> tuple[str, ...]:
    """CUDA's headers: those of the installed wheels, else a toolkit's."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) / "cu13" / "include" for p in (spec.submodule_search_locations or [])] if spec else []
    roots += [Path(os.environ[v]) / "include" for v in ("CUDA_HOME", "CUDA_PATH") if v in os.environ]
    roots.append(Path("/usr/local/cuda/include"))
    for needed in (("cuda_bf16.h", "crt/mma.h"), ("cuda_bf16.h",)):  # a folder that has everything, else what there is
        for root in roots:
            if all((root / name).is_file() for name in needed):
                return (str(root), str(root / "cccl"))
    raise MissingError("CUDA's headers (cuda_bf16.h) are not here", hint=INSTALL)


@functools.cache
def version(compiler: str = "nvrtc") -> str:
    """The compiler's version, part of every key."""
    shims = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(SHIMS.iterdir()))).hexdigest()[:8]
    if compiler != "nvrtc":
        found = subprocess.run([shlex.split(compiler)[0], "--version"], capture_output=True, text=True, check=False)
        return f"{compiler} {found.stdout.strip()[-80:]}"
    nvrtc = _nvrtc()
    headers = Path(header_folders()[0], "cuda.h").read_bytes()
    number = re.search(rb"#define CUDA_VERSION (\d+)", headers)
    _, major, minor = nvrtc.nvrtcVersion()
    return f"nvrtc {major}.{minor} headers {number[1].decode() if number else '?'} shims {shims}"


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise MissingError(f"NVRTC, the CUDA compiler library, is not here ({error})", hint=INSTALL) from None
    return nvrtc


def compile_program(program: Program, key: str) -> Build:
    """Compile one program to a cubin."""
    if program.compiler == "nvrtc":
        return _with_nvrtc(program, key)
    return _with_nvcc(program, key)


def _with_nvrtc(program: Program, key: str) -> Build:
    nvrtc = _nvrtc()
    folders = [*program.include, *header_folders(), str(SHIMS)]
    options = [
        f"--gpu-architecture={program.arch}",
        *program.options,
        *(f"-I{f}" for f in folders),
        "--ptxas-options=-v",
        "--no-cache",  # its own, kept with the driver: a hit says nothing in the log, and the log tells the spills
    ]
    _, handle = nvrtc.nvrtcCreateProgram(program.source.encode(), f"{NOWHERE}kernel.cu".encode(), 0, [], [])
    try:
        for entry in program.entries:
            nvrtc.nvrtcAddNameExpression(handle, entry.encode())
        (error,) = nvrtc.nvrtcCompileProgram(handle, len(options), [o.encode() for o in options])
        _, size = nvrtc.nvrtcGetProgramLogSize(handle)
        written = _written(size, lambda buffer: nvrtc.nvrtcGetProgramLog(handle, buffer))
        log = written.decode(errors="replace").rstrip("\0 \n").replace(NOWHERE, "")
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return Build(key, FAILED, reason=error_line(log), log=log)
        _, size = nvrtc.nvrtcGetCUBINSize(handle)
        cubin = _written(size, lambda buffer: nvrtc.nvrtcGetCUBIN(handle, buffer))
        symbols = {}
        for entry in program.entries:
            _, lowered = nvrtc.nvrtcGetLoweredName(handle, entry.encode())
            symbols[entry] = lowered.decode() if lowered else entry
    finally:
        nvrtc.nvrtcDestroyProgram(handle)
    return _built(key, cubin, log, symbols)


def _written(size: int, write: Callable[[bytearray], object]) -> bytes:
    """What the library writes into a buffer of that size.

    Never into `bytes`: those of one character are shared by the whole process, and an empty log is one NUL. (Seen: from then
    on Python 3.12 took the space out of every f"{a} {b}" that it compiled, and torch could not be imported any more.)
    """
    buffer = bytearray(size)
    write(buffer)
    return bytes(buffer)


def _with_nvcc(program: Program, key: str) -> Build:
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        source.write_text(program.source)
        number = program.arch.removeprefix("sm_")
        command = [*shlex.split(program.compiler), "-cubin", f"-gencode=arch=compute_{number},code=sm_{number}", *program.options,
                   *(f"-I{f}" for f in program.include), "-Xptxas=-v", "-o", str(cubin), str(source)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = (done.stdout + done.stderr).strip()
        if done.returncode or not cubin.is_file():
            return Build(key, FAILED, reason=error_line(log), log=log)
        found = [k.symbol for k in read_cubin(cubin.read_bytes())]
        return _built(key, cubin.read_bytes(), log, {entry: _symbol(entry, found) for entry in program.entries})


def _symbol(entry: str, symbols: list[str]) -> str:
    """The symbol of a kernel that nvcc made: its name, or how C++ mangles it (instantiations are NVRTC's affair)."""
    names = "".join(f"{len(name)}{name}" for name in entry.split("::"))
    mangled = f"_ZN{names}E" if "::" in entry else f"_Z{names}"
    found = [s for s in symbols if s == entry or s.startswith(mangled)]
    return found[0] if len(found) == 1 else entry


def _built(key: str, cubin: bytes, log: str, symbols: dict[str, str]) -> Build:
    found = {k.symbol: k for k in read_cubin(cubin)}
    spills = {name: int(stored) for name, stored in SPILLS.findall(log)}
    for entry, symbol in symbols.items():
        if symbol not in found:
            return Build(
                key, FAILED, reason=f"no kernel {entry!r} in the source; it has: {', '.join(found) or 'none'}", log=log
            )
    kernels = tuple(_kernel(entry, found[symbol], spills.get(symbol, 0)) for entry, symbol in symbols.items())
    return Build(key, BUILT, log=log, kernels=kernels, fingerprint=code_fingerprint(cubin), binary=cubin)


def _kernel(entry: str, found: CubinKernel, spill_bytes: int) -> Kernel:
    return Kernel(
        entry=entry, symbol=found.symbol, registers=found.registers, spill_bytes=spill_bytes, shared_bytes=found.shared_bytes,
        code_bytes=found.code_bytes, cluster=found.cluster, parameters=tuple(size for _, size in found.parameters),
    )  # fmt: skip


def error_line(log: str) -> str:
    """The line of a compiler's log that says what is wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "the compiler said nothing")
