"""The finder of OpenCL runtimes: what it believes, what it doubts, what it fetches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunesmith.backends import opencl_runtime
from tunesmith.backends.opencl_runtime import MODULE, Runtime, fetch, find, needed
from tunesmith.errors import MissingError
from tunesmith.process import Answer, Child, Died

Says = Callable[..., list[str]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNESMITH_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    return tmp_path


@pytest.fixture
def works(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """Say which devices work from now on ("kind 0"); gives the list of those that are tried from then on."""

    def say(*working: str) -> list[str]:
        tried: list[str] = []

        class FakeChild:
            def __init__(self, function: str, *, environment: dict[str, str], folder: Path) -> None:
                vendors = environment.get("OCL_ICD_VENDORS", "")
                self.kind = "pocl" if "libpocl" in vendors else "intel" if "libintelocl" in vendors else "system"

            def __enter__(self) -> FakeChild:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def ask(self, index: int | None, timeout: float) -> Answer:
                if index is None:
                    return Answer({"count": 2})
                tried.append(f"{self.kind} {index}")
                if tried[-1] not in working:
                    raise Died("the process ended with signal SIGSEGV")
                return Answer({"devices": [["platform", tried[-1], "cpu"]]})

        monkeypatch.setattr(opencl_runtime, "Child", FakeChild)
        return tried

    return say


def unpacked_pocl(root: Path) -> Path:
    library = root / "usr/lib/x86_64-linux-gnu/libpocl.so.2.10.0"
    library.parent.mkdir(parents=True)
    library.write_text("a library")
    return library


def names(runtime: Runtime) -> list[str]:
    return [name for _, name, _ in runtime.devices]


def test_the_system_comes_first_and_needs_no_variables(cache: Path, works: Says) -> None:
    unpacked_pocl(cache / "pocl")
    works("system 0", "system 1", "pocl 0")
    found = find()
    assert (found.kind, found.environment, names(found)) == ("system", {}, ["system 0", "system 1"])


def test_a_device_that_crashes_hides_no_other(works: Says) -> None:
    works("system 1")
    assert names(find()) == ["system 1"]


def test_pocl_comes_with_its_libraries_and_linker_in_front(
    cache: Path, works: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = unpacked_pocl(cache / "pocl")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/theirs")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    works("pocl 0")
    found = find()
    assert (found.kind, found.folder) == ("pocl", cache / "pocl")
    assert found.environment["OCL_ICD_VENDORS"] == str(library)
    assert found.environment["LD_LIBRARY_PATH"].split(":")[::2] == [str(library.parent), "/theirs"]
    assert found.environment["PATH"] == f"{cache}/pocl/bin:/usr/bin:/bin"


def test_in_a_child_of_ours_the_same_runtime_is_found(
    cache: Path, works: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked_pocl(cache / "pocl")
    works("pocl 0", "system 0")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(cache / "pocl/usr/lib/x86_64-linux-gnu/libpocl.so.2.10.0"))
    assert find().kind == "pocl"


def test_intel_is_the_last_resort(cache: Path, works: Says) -> None:
    library = cache / "prefix/lib/libintelocl.so"
    library.parent.mkdir(parents=True)
    library.touch()
    works("intel 0")
    assert find().environment == {"OCL_ICD_VENDORS": str(library)}


def test_what_was_proved_is_not_proved_again(cache: Path, works: Says) -> None:
    unpacked_pocl(cache / "pocl")
    works("pocl 0")
    first = find()
    tried = works("pocl 0")
    assert find() == first
    assert tried == []


def test_a_damaged_memory_heals(cache: Path, works: Says) -> None:
    unpacked_pocl(cache / "pocl")
    works("pocl 0")
    first = find()
    for damage in ('{"devices": [["torn', "[]", '{"devices": [[1]], "reason": "", "time": 0}', ""):
        for proof in cache.glob("opencl-proofs/*"):
            proof.write_text(damage)
        assert find() == first
        tried = works("pocl 0")
        assert find() == first
        assert tried == []


def test_a_changed_runtime_is_proved_again(cache: Path, works: Says) -> None:
    library = unpacked_pocl(cache / "pocl")
    works("pocl 0")
    find()
    library.write_text("another library")
    tried = works("pocl 0", "pocl 1")
    assert names(find()) == ["pocl 0", "pocl 1"]
    assert tried == ["pocl 0", "pocl 1"]


def test_none_is_said_only_after_a_fresh_look(works: Says) -> None:
    works()
    with pytest.raises(MissingError, match="system: the process ended with signal SIGSEGV") as missing:
        find()
    assert "install" in missing.value.hint
    works("system 0")  # nothing that the memory hangs on has changed
    assert find().kind == "system"


def test_an_old_no_is_doubted(cache: Path, works: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked_pocl(cache / "pocl")
    works("pocl 0")
    assert find().kind == "pocl"
    monkeypatch.setattr(opencl_runtime, "DOUBT_SECONDS", 0.0)
    works("system 0", "pocl 0")
    assert find().kind == "system"


def test_without_pyopencl_the_hint_is_its_install_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingError) as missing:
        find(fetching=True)
    assert missing.value.hint == "pip install 'tunesmith[opencl]'"


LISTING = """\
pocl-opencl-icd
  Depends: libpocl2
libpocl2
  Depends: libpocl2-common
  Depends: clang-15
  Depends: libc6
 |Depends: libhwloc15
  Depends: <hwloc-abi>
  Depends: libclang-cpp15
libhwloc15
  PreDepends: libudev1
clang-15
  Depends: libc6-dev
binutils
  Depends: binutils-x86-64-linux-gnu
libc6
apt
  Depends: libc6
  Depends: libudev1:any
<hwloc-abi>
"""


def test_needed_leaves_out_compilers_headers_and_what_apt_brings() -> None:
    expected = ["binutils", "binutils-x86-64-linux-gnu", "libclang-cpp15", "libhwloc15", "libpocl2", "libpocl2-common"]
    assert needed(LISTING) == [*expected, "pocl-opencl-icd"]


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch) -> None:
    """An apt that downloads one package, and a dpkg that unpacks a PoCL from it."""

    def run(command: list[str], folder: Path | None = None) -> str:
        if command[0] == "dpkg":
            unpacked_pocl(Path(command[3]))
        elif "download" in command:
            assert folder is not None
            (folder / "pocl.deb").touch()
        return LISTING

    monkeypatch.setattr(opencl_runtime, "_run", run)


@pytest.mark.usefixtures("apt")
def test_fetch_puts_a_proved_pocl_in_place_of_a_broken_one(cache: Path, works: Says) -> None:
    (cache / "pocl/usr").mkdir(parents=True)
    (cache / "pocl-fetch-killed").mkdir()
    works("pocl 0")
    assert fetch() == cache / "pocl"
    assert find().kind == "pocl"
    assert os.access(cache / "pocl/bin/ld", os.X_OK)
    assert (cache / "pocl/bin/libm.so").readlink() == Path("/lib/x86_64-linux-gnu/libm.so.6")
    assert not list(cache.glob("pocl-fetch-*"))


@pytest.mark.usefixtures("apt")
def test_fetch_leaves_nothing_that_does_not_work(cache: Path, works: Says) -> None:
    works()
    with pytest.raises(MissingError, match="SIGSEGV") as missing:
        fetch()
    assert missing.value.hint == "sudo apt-get install pocl-opencl-icd"
    assert not list(cache.glob("pocl*/"))


def test_where_there_is_no_apt_the_hint_says_what_to_install(
    cache: Path, works: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    works()
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(MissingError, match="cannot be fetched") as missing:
        fetch()
    assert missing.value.hint == "pip install intel-opencl-rt intel-cmplr-lib-rt"


def command_line(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", MODULE], env=os.environ | variables, capture_output=True, text=True)


def test_the_command_exits_3_with_a_hint_where_nothing_works(tmp_path: Path) -> None:
    said = command_line(TUNESMITH_CACHE=str(tmp_path), OCL_ICD_VENDORS=str(tmp_path))
    assert (said.returncode, said.stdout) == (3, "")
    assert said.stderr.startswith("error: no OpenCL runtime works here")
    assert "hint: " in said.stderr


@pytest.fixture(scope="session")
def runtime() -> Runtime:
    try:
        return find()
    except MissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.opencl
def test_a_child_with_the_environment_runs_kernels(runtime: Runtime, tmp_path: Path) -> None:
    with Child(f"{MODULE}:try_device", environment=runtime.environment, folder=tmp_path) as child:
        count = child.ask(None, 60.0).fields["count"]
        answers: list[dict[str, Any]] = [child.ask(index, 60.0).fields for index in range(count)]
    worked = [tuple(device) for answer in answers for device in answer.get("devices", ())]
    assert worked == list(runtime.devices)


@pytest.mark.opencl
def test_the_command_prints_one_line(runtime: Runtime) -> None:
    said = command_line()
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.count("\n") == 1
    assert said.stdout.startswith(f"{runtime.kind}: {runtime.devices[0][1]}")
