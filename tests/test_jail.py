"""A process that shut itself in reads what it was given, writes where it may, and reaches no network."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tunesmith import jail, process
from tunesmith.process import Child

LANDLOCK = ctypes.CDLL(None).syscall(jail.CREATE_RULESET, None, 0, jail.GET_VERSION)
needs_landlock = pytest.mark.skipif(LANDLOCK < 1, reason="this kernel has no Landlock: files are not shut away here")
needs_network_rules = pytest.mark.skipif(LANDLOCK < 4, reason="this kernel's Landlock knows no TCP (it came with 6.7)")


LIMITS = ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_CORE")


def attempt(act: Callable[[], Any]) -> str:
    try:
        return f"done: {act()!r}"
    except (OSError, MemoryError) as error:
        return type(error).__name__


def handle(message: dict[str, Any]) -> dict[str, Any]:
    """Shut in, then try everything that the message asks for; runs in the child."""
    if "compile" in message:
        from tunesmith.backends import nvrtc

        nvrtc.version()
    shut = jail.shut(
        read=[*jail.system_folders(), *message["read"]], write=message["write"], **message.get("limits", {})
    )
    tried: dict[str, str] = {}
    for path in message.get("reading", ()):
        tried[path] = attempt(lambda p=path: Path(p).read_bytes()[:20])  # type: ignore[misc]
    for path in message.get("writing", ()):
        tried[path] = attempt(lambda p=path: Path(p).write_text("x"))  # type: ignore[misc]
    for path in message.get("removing", ()):
        tried[path] = attempt(lambda p=path: Path(p).unlink())  # type: ignore[misc]
    for path in message.get("listing", ()):
        tried[path] = attempt(lambda p=path: os.listdir(p))  # type: ignore[misc]
    if "connect" in message:
        tried["connect"] = attempt(lambda: socket.create_connection(tuple(message["connect"]), 5))
        tried["bind"] = attempt(lambda: socket.create_server(("127.0.0.1", 0)))
    if "allocate" in message:
        tried["allocate"] = attempt(lambda: len(bytearray(message["allocate"])))
    if "compile" in message:
        tried["compile"] = _compile(message["compile"], message["write"][0])
    return {
        "shut": shut,
        "tried": tried,
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS},
    }


def _compile(source: str, work: str) -> str:
    from tunesmith.backends import nvrtc
    from tunesmith.build import Program

    tempfile.tempdir = os.environ["TMPDIR"] = work
    build = nvrtc.compile_program(Program("cuda", source, ("k",), "sm_90a"), "key")
    return build.status + " " + build.log


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Callable[..., dict[str, str]]]:
    """Ask a fresh child to shut itself in, with `work` to write and `given` to read, and to try things."""
    (tmp_path / "work").mkdir()
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file").write_text("given")
    (tmp_path / "secret").write_text("s3cret")
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(process.__file__).parent.parent)])
    with Child("test_jail:handle", environment={"PYTHONPATH": path}, folder=tmp_path / "child") as child:

        def ask(**tries: Any) -> dict[str, str]:
            message = {"read": [str(tmp_path / "given")], "write": [str(tmp_path / "work")], **tries}
            fields = child.ask(message, 60).fields
            assert fields.get("error") is None, fields
            assert fields["shut"] is (LANDLOCK >= 1)
            return {**fields["tried"], **({} if "limits" not in tries else fields["limits"])}

        yield ask


@needs_landlock
def test_reading(inside: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    os.symlink("/etc/passwd", tmp_path / "given" / "link")
    refused = ["/etc/passwd", "/etc/hostname", f"/proc/{os.getpid()}/environ", "/proc/self/environ", "/proc/1/environ",
               str(tmp_path / "secret"), str(tmp_path / "given" / "link"), str(tmp_path / "given/../secret")]  # fmt: skip
    tried = inside(reading=[*refused, str(tmp_path / "given" / "file")], listing=["/root", "/home", str(tmp_path)])
    assert tried.pop(str(tmp_path / "given" / "file")) == "done: b'given'"
    assert set(tried.values()) == {"PermissionError"}, tried


@needs_landlock
def test_writing(inside: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    mine = str(tmp_path / "work" / "mine")
    refused = [
        str(tmp_path / "new"),
        str(tmp_path / "given" / "file"),
        str(tmp_path / "given" / "new"),
        "/tmp/tunesmith-jail",
    ]
    tried = inside(writing=[mine, *refused], removing=[str(tmp_path / "secret")])
    assert tried.pop(mine) == "done: 1"
    assert set(tried.values()) == {"PermissionError"}, tried
    assert (tmp_path / "given" / "file").read_text() == "given"


@needs_network_rules
def test_no_tcp(inside: Callable[..., dict[str, str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), 5).close()  # outside it works
        tried = inside(connect=server.getsockname())
    assert tried == {"connect": "PermissionError", "bind": "PermissionError"}


def test_memory_is_bounded(inside: Callable[..., dict[str, str]]) -> None:
    tried = inside(allocate=8 << 30, limits={"memory_bytes": 4 << 30, "cpu_seconds": 50})
    assert tried["allocate"] == "MemoryError"
    assert tried["RLIMIT_AS"] == [4 << 30, 4 << 30]  # hard, too: it cannot be raised again
    assert tried["RLIMIT_CPU"] == [50, 50]
    assert tried["RLIMIT_CORE"] == [0, 0]


def test_time_is_bounded(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(process.__file__).parent.parent)])
    with Child("test_jail:spin", environment={"PYTHONPATH": path}) as child, pytest.raises(process.Died) as caught:
        child.ask(None, 60)
    assert "signal" in str(caught.value)
    assert not caught.value.hung


def spin(_: object) -> None:
    jail.shut(read=jail.system_folders(), write=[], cpu_seconds=1)
    while True:
        pass


KERNEL = (
    '#include <cuda_bf16.h>\n#include <stdint.h>\n{}\nextern "C" __global__ void k(__nv_bfloat16* p) {{ *p = 1; }}\n'
)


@needs_landlock
def test_nvrtc_compiles_inside_and_reads_no_secret(inside: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    assert inside(compile=KERNEL.format(""))["compile"].startswith("built")
    tried = inside(compile=KERNEL.format(f'#include "{tmp_path}/secret"'))
    assert tried["compile"].startswith("build_failed")
    assert "s3cret" not in tried["compile"]
    assert "cannot open source file" in tried["compile"]
