"""Shut the current process in: which folders it may read and write, no TCP, bounded memory and time.

Landlock through ctypes (Linux 5.13 or newer); where the kernel has none, the resource limits still hold and `shut`
says so. It contains mistakes and casual misuse; it is no boundary against a hostile tenant.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
PATH_BENEATH = 1
GET_VERSION = 1
PR_SET_NO_NEW_PRIVS = 38
O_PATH = 0o10000000
READ = 0b1101  # execute, read file, read folder
FILE_ONLY = 0b111 | 1 << 14 | 1 << 15
BIND_AND_CONNECT = 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("fd", ctypes.c_int32))


def shut(
    *, read: Iterable[str | Path], write: Iterable[str | Path], memory_bytes: int = 0, cpu_seconds: int = 0
) -> bool:
    """Restrict this process for good. Gives whether file access is restricted too (else only resources are)."""
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        if value or limit == resource.RLIMIT_CORE:
            _, hard = resource.getrlimit(limit)
            most = value if hard < 0 else min(value, hard)
            resource.setrlimit(limit, (most, most))
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE_RULESET, None, 0, GET_VERSION)
    if version < 1:
        return False
    everything = (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1
    rules = _Ruleset(everything, BIND_AND_CONNECT if version >= 4 else 0, 0)
    size = 8 if version < 4 else 16
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(rules), size, 0)
    if ruleset < 0:
        return False
    for folders, access in ((read, READ), (write, everything)):
        for folder in folders:
            _allow(libc, ruleset, Path(folder), access & everything)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    done: int = libc.syscall(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    return done == 0


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, access: int) -> None:
    try:
        fd = os.open(path, O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no permission
    rule = _PathBeneath(access if path.is_dir() else access & FILE_ONLY, fd)
    libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(fd)


def system_folders() -> list[str]:
    """What any Python process with native libraries must read."""
    paths = {sys.prefix, sys.base_prefix, sysconfig.get_paths()["purelib"], str(Path(__file__).resolve().parent)}
    return [*sorted(paths), "/usr", "/lib", "/lib64", "/bin", "/opt", "/etc/ld.so.cache", "/etc/OpenCL", "/dev/null",
            "/dev/urandom", "/proc/self/maps", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"]  # fmt: skip
