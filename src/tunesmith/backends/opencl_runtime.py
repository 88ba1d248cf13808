"""Find an OpenCL runtime that works, or fetch PoCL without root. Knows nothing of kernels or tuning.

A platform that is listed is not yet one that works: a runtime counts once a child has built and run a kernel on it and
got the right numbers, which is remembered on disk under all that the answer hangs on.
A runtime outside the system is reached through variables. The loader reads LD_LIBRARY_PATH when a process starts, so
give them to children (`process.Child`) and import pyopencl only there: set in a running process they come too late.
PoCL links each kernel by `ld` with -lm -lgcc -lc, names that only a machine with a compiler knows: its bin/ld adds them.
Invariant: every device that `find` gives has run the probe.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tunesmith.errors import MissingError
from tunesmith.process import Child, Died, clean_environment

MODULE = "tunesmith.backends.opencl_runtime"
PROBE_SECONDS = 60.0  # for one device; a cold disk under load has taken 5
DOUBT_SECONDS = 3600.0  # how long "does not work" is believed
Devices = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Runtime:
    """A runtime: what to set before pyopencl is imported, and its devices as (platform, name, cpu | gpu | other)."""

    kind: str  # system, pocl or intel
    environment: dict[str, str] = field(default_factory=dict)
    devices: Devices = ()
    folder: Path | None = None  # what a jail must let the process read, beside the system


def find(*, fetching: bool = False) -> Runtime:
    """Give the first runtime that works: the system's, PoCL in our cache (fetched if asked for), Intel's from PyPI."""
    reasons: dict[str, str] = {}
    for answer in (_recall, _prove):  # doubt what was remembered before anyone is told "none"
        for candidate in _candidates():
            devices, reasons[candidate.kind] = answer(candidate)
            if devices:
                return replace(candidate, devices=devices)
    if fetching:
        fetch()
        return find()
    tried = "; ".join(f"{kind}: {reason}" for kind, reason in reasons.items())
    raise MissingError(f"no OpenCL runtime works here ({tried})", hint=_install_line())


def _install_line() -> str:
    if shutil.which("apt-get"):
        return f"python -m {MODULE} --fetch (needs no root), or: sudo apt-get install pocl-opencl-icd"
    return "sudo dnf install pocl" if shutil.which("dnf") else "pip install intel-opencl-rt intel-cmplr-lib-rt"


def _cache() -> Path:
    return Path(os.environ.get("TUNESMITH_CACHE") or Path.home() / ".cache/tunesmith").absolute()


def _candidates() -> list[Runtime]:
    system, pocl = Runtime("system"), _pocl(_cache() / "pocl")
    if pocl and os.environ.get("OCL_ICD_VENDORS") == pocl.environment["OCL_ICD_VENDORS"]:
        return [pocl]  # a child of ours asks
    library = Path(sys.prefix, "lib/libintelocl.so")  # the .icd beside it names a folder of its packer's
    intel = Runtime("intel", {"OCL_ICD_VENDORS": str(library)}, folder=Path(sys.prefix))
    return [system, *([pocl] if pocl else []), *([intel] if library.exists() else [])]


def _pocl(root: Path) -> Runtime | None:
    for library in root.glob("usr/lib/*/libpocl.so.*.*"):
        environment = {"OCL_ICD_VENDORS": str(library)}
        ours = {"LD_LIBRARY_PATH": [library.parent, root / "lib" / library.parent.name], "PATH": [root / "bin"]}
        for variable, folders in ours.items():
            theirs = os.environ.get(variable, "").split(os.pathsep)
            environment[variable] = os.pathsep.join(dict.fromkeys([*map(str, folders), *filter(None, theirs)]))
        return Runtime("pocl", environment, folder=root)
    return None


def _recall(candidate: Runtime) -> tuple[Devices, str]:
    """The last proof where nothing it hangs on has changed, else a new one; a damaged memory is none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(_memory(candidate).read_text())
        devices = tuple((str(platform), str(name), str(kind)) for platform, name, kind in kept["devices"])
        if devices or 0 <= time.time() - kept["time"] < DOUBT_SECONDS:
            return devices, str(kept["reason"])
    return _prove(candidate)


def _memory(candidate: Runtime) -> Path:
    """The file that keeps a proof, named after variables, pyopencl, the runtime's files, the linker, CPU and driver."""
    if importlib.util.find_spec("pyopencl") is None:
        raise MissingError("pyopencl is not installed", hint="pip install 'tunesmith[opencl]'")
    around = clean_environment(candidate.environment)
    seen = {name: value for name, value in around.items() if not name.startswith(("POCL_", "PYTHON"))}
    vendors = Path(seen.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors"))
    named = [icd.read_text(errors="replace").strip() for icd in sorted(vendors.glob("*.icd"))]
    files = [str(vendors), "/etc/ld.so.cache", shutil.which("ld", path=seen.get("PATH")) or "", *named]
    if candidate.kind == "pocl" and candidate.folder:
        files += [os.path.join(folder, name) for folder, _, names in os.walk(candidate.folder) for name in names]
    stamps = [(f, os.stat(f).st_mtime_ns, os.stat(f).st_size) for f in sorted(files) if os.path.exists(f)]
    told = [file for file in ("/proc/cpuinfo", "/proc/driver/nvidia/version") if os.path.exists(file)]
    lines = {line for file in told for line in Path(file).read_text().splitlines()}
    machine = sorted(line for line in lines if re.match("model name|flags|Features|CPU part|NVRM", line))
    facts = json.dumps([candidate.kind, seen, version("pyopencl"), sys.version, named, stamps, machine])
    return _cache() / "opencl-proofs" / f"{hashlib.sha256(facts.encode()).hexdigest()[:24]}.json"


def _prove(candidate: Runtime) -> tuple[Devices, str]:
    """Try every device in a child that may crash or hang, past the caches of PoCL, pyopencl and the driver."""
    devices: list[tuple[str, str, str]] = []
    reason = ""
    with tempfile.TemporaryDirectory(prefix="tunesmith-") as folder:
        uncached = {"POCL_CACHE_DIR": folder, "PYOPENCL_NO_CACHE": "1", "CUDA_CACHE_DISABLE": "1"}
        with Child(f"{MODULE}:try_device", environment=candidate.environment | uncached, folder=Path(folder)) as child:
            left: list[int | None] = [None]
            while left:
                try:
                    fields = child.ask(left.pop(0), PROBE_SECONDS).fields
                except Died as died:
                    fields = {"error": str(died)}
                left += range(fields.get("count", 0))
                devices += [tuple(device) for device in fields.get("devices", [])]
                reason = " ".join(fields.get("error", reason).split())[-300:]
    with contextlib.suppress(OSError):  # a memory that cannot be kept only costs time
        file = _memory(candidate)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"devices": devices, "reason": reason, "time": time.time()}))
    return tuple(devices), reason


KERNEL = """__kernel void probe(__global const float16 *x, __global float16 *y) {
    __local float16 tile[16];
    tile[get_local_id(0)] = sqrt(x[get_global_id(0)]);
    barrier(CLK_LOCAL_MEM_FENCE);
    y[get_global_id(0)] = tile[15 - get_local_id(0)] * 2.0f + 1.0f; }"""


def try_device(index: int | None) -> dict[str, Any]:
    """In the child: how many devices there are (None), or run the probe on one of them."""
    import numpy as np
    import pyopencl as cl

    found = []
    for platform in cl.get_platforms():
        with contextlib.suppress(cl.Error):  # a platform without devices raises
            found += [(platform.name.strip(), device) for device in platform.get_devices()]
    if index is None:
        return {"count": len(found)} if found else {"error": "no device"}
    platform_name, device = found[index]
    queue = cl.CommandQueue(context := cl.Context([device]))
    x, y = np.arange(4096, dtype=np.float32), np.zeros(4096, dtype=np.float32)
    source = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
    target = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, y.nbytes)
    cl.Kernel(cl.Program(context, KERNEL).build(), "probe")(queue, (256,), (16,), source, target)
    cl.enqueue_copy(queue, y, target)
    if not np.allclose(y, 2 * np.sqrt(x).reshape(16, 16, 16)[:, ::-1].ravel() + 1, rtol=1e-5):
        raise ArithmeticError(f"{device.name.strip()} gave wrong numbers")
    kind = "gpu" if device.type & cl.device_type.GPU else "cpu" if device.type & cl.device_type.CPU else "other"
    return {"devices": [[platform_name, device.name.strip(), kind]]}


def fetch() -> Path:
    """Unpack PoCL and all it needs into our cache, without root; it takes its place only once proved."""
    target = _cache() / "pocl"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        there = _pocl(target)
        if there and _recall(there)[0]:
            return target  # somebody fetched it while this process waited
        for remains in target.parent.glob("pocl-fetch-*"):
            shutil.rmtree(remains, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="pocl-fetch-", dir=target.parent) as folder:
            fetched = _pocl(root := _unpack(Path(folder)))
            devices, reason = _prove(fetched) if fetched else ((), "no libpocl in the packages")
            if not devices:
                raise MissingError(f"PoCL fetched, not working: {reason}", hint="sudo apt-get install pocl-opencl-icd")
            shutil.rmtree(target, ignore_errors=True)
            root.rename(target)
    return target


def _unpack(folder: Path) -> Path:
    """Fetch by package lists of our own: the system's may be missing or stale, and are not ours to renew."""
    for sub in ("lists/partial", "cache/archives/partial", "debs", "root/bin"):
        Path(folder, sub).mkdir(parents=True)
    apt = ["-qq", f"-oDir::State={folder}", "-oDir::State::status=/dev/null", f"-oDir::Cache={folder}/cache",
           "-oAPT::Sandbox::User=root", "-oAcquire::Languages=none", "-oAcquire::http::Timeout=30"]  # fmt: skip
    print("opencl: reading package lists", file=sys.stderr)
    with contextlib.suppress(MissingError):  # some other source may be broken
        _run(["apt-get", *apt, "update"])
    only = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    packages = needed(_run(["apt-cache", *apt, "depends", "--recurse", *only, "pocl-opencl-icd", "binutils", "apt"]))
    print(f"opencl: fetching PoCL ({len(packages)} packages)", file=sys.stderr)
    _run(["apt-get", *apt, "download", *packages], folder / "debs")
    root = folder / "root"
    for package in folder.glob("debs/*.deb"):
        _run(["dpkg", "-x", str(package), str(root)])
    for unread in ("doc", "man", "locale"):
        shutil.rmtree(root / "usr/share" / unread, ignore_errors=True)
    (root / "bin/ld").write_text('#!/bin/sh\nexec "${0%/*}/../usr/bin/ld" "$@" -L"${0%/*}"\n')
    (root / "bin/ld").chmod(0o755)
    for library in root.glob("usr/lib/*/libpocl.so.*.*"):
        for name, real in {"m.so": "m.so.6", "c.so": "c.so.6", "gcc_s.so": "gcc_s.so.1", "gcc.a": "gcc_s.so.1"}.items():
            (root / f"bin/lib{name}").symlink_to(f"/lib/{library.parent.name}/lib{real}")
    return root


def needed(listing: str) -> list[str]:
    """What PoCL and its linker need to run, from `apt-cache depends`, less what every machine with apt has."""
    blocks = re.split(r"\n(?=\S)", listing)
    graph = {block.partition("\n")[0]: re.findall(r"(?m)^ [ |](?:Pre)?Depends: ([^\s<:]+)", block) for block in blocks}

    def closure(names: set[str]) -> set[str]:
        more = {name for known in names for name in graph.get(known, ())} - names
        wanted = {name for name in more if not re.match(r"clang-\d+$|.*-dev$", name)}  # PoCL carries its own headers
        return closure(names | wanted) if wanted else names

    return sorted(closure({"pocl-opencl-icd", "binutils"}) - closure({"apt"}))


def _run(command: list[str], folder: Path | None = None) -> str:
    try:
        plain = os.environ | {"LC_ALL": "C"}  # apt translates even the word "Depends"
        return subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise MissingError(f"PoCL cannot be fetched: {said.strip()[-300:]}", hint=_install_line()) from error


if __name__ == "__main__":
    try:
        works = find(fetching="--fetch" in sys.argv)
    except (MissingError, OSError) as missing:
        print(f"error: {missing}", file=sys.stderr)
        sys.exit(3)
    print(f"{works.kind}: " + "; ".join(f"{name} ({platform}, {kind})" for platform, name, kind in works.devices))
