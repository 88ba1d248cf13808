"""The cache of builds: keys that cover all that decides, entries that are whole or absent."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tunesmith.build import BUILT, CRASHED, FAILED, HUNG, UNSAFE, Build, BuildCache, Kernel, Program, program_key

KERNEL = Kernel("k", "_Z1k", registers=32, spill_bytes=4, shared_bytes=1024, code_bytes=640, parameters=(8, 8, 4))
BUILD = Build(
    "ab" + "0" * 30, BUILT, log="ptxas info", kernels=(KERNEL,), fingerprint="f", binary=b"\x7fELF\0code", seconds=0.1
)
PROGRAM = Program("cuda", "void k();", ("k",), "sm_90a", ("-std=c++17",))


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path)


# --- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"language": "opencl"},
        {"source": "void k(); "},
        {"entries": ("k", "l")},
        {"arch": "sm_90"},
        {"options": ("-std=c++17", "--use_fast_math")},
        {"options": ()},
        {"include": ("/somewhere",)},
        {"compiler": "nvcc"},
    ],
)
def test_everything_about_a_program_is_in_its_key(changed: dict[str, object]) -> None:
    assert program_key(replace(PROGRAM, **changed), "1") != program_key(PROGRAM, "1")  # type: ignore[arg-type]


def test_so_is_the_compiler_s_version() -> None:
    assert program_key(PROGRAM, "1") != program_key(PROGRAM, "2")
    assert program_key(PROGRAM, "1") == program_key(replace(PROGRAM), "1")


@pytest.mark.parametrize(
    "include",
    [
        '#include "own.h"',
        "#include <own.h>",
        "  #  include\t<own.h> // why",
        "/* first */ #include <own.h>",
        "# /* here */ include /* there */ <own.h>",
        '%:include "own.h"',
        '#inc\\\nlude "own.h"',
        '#include \\\n "own.h"',
    ],
)
@pytest.mark.parametrize("deep", [False, True], ids=["direct", "through another"])
def test_a_key_covers_the_user_s_headers_however_included(tmp_path: Path, include: str, deep: bool) -> None:
    own = tmp_path / ("sub/own.h" if deep else "own.h")
    own.parent.mkdir(exist_ok=True)
    own.write_text("int a;")
    source = include
    if deep:
        (tmp_path / "sub" / "outer.h").write_text(include)
        source = '#include "sub/outer.h"\n'
    program = replace(PROGRAM, source=source, include=(str(tmp_path / "other"), str(tmp_path)))
    if deep:
        program = replace(program, include=(*program.include, str(tmp_path / "sub")))
    before = program_key(program, "1")
    assert program_key(program, "1") == before
    own.write_text("int b;")
    assert program_key(program, "1") != before


def test_headers_that_include_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\n')
    (tmp_path / "b.h").write_text('#include "a.h"\n')
    program = replace(PROGRAM, source='#include "a.h"\n', include=(str(tmp_path),))
    before = program_key(program, "1")
    (tmp_path / "b.h").write_text('#include "a.h"\n\n')
    assert program_key(program, "1") != before


def test_a_header_that_appears_earlier_on_the_path_changes_the_key(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (second / "own.h").write_text("int a;")
    program = replace(PROGRAM, source="#include <own.h>\n", include=(str(first), str(second)))
    before = program_key(program, "1")
    (first / "own.h").write_text("int a;")
    assert program_key(program, "1") != before


# --- entries -----------------------------------------------------------------------------------------------------------


def test_a_build_comes_back_as_it_was(cache: BuildCache) -> None:
    assert cache.get(BUILD.key) is None
    cache.put(BUILD)
    found = cache.get(BUILD.key)
    assert found == replace(BUILD, cached=True)
    assert found is not None
    assert found.kernel("k").parameters == (8, 8, 4)


@pytest.mark.parametrize("status", [FAILED, UNSAFE])
def test_failures_that_would_come_out_the_same_are_kept(cache: BuildCache, status: str) -> None:
    cache.put(Build(BUILD.key, status, reason="error: no", log="a log"))
    found = cache.get(BUILD.key)
    assert found is not None
    assert (found.status, found.reason, found.log, found.cached) == (status, "error: no", "a log", True)


@pytest.mark.parametrize("status", [CRASHED, HUNG])
def test_accidents_are_not_kept(cache: BuildCache, status: str) -> None:
    cache.put(Build(BUILD.key, status))
    assert cache.get(BUILD.key) is None


def entry(cache: BuildCache, suffix: str) -> Path:
    (found,) = cache.folder.rglob(f"*{suffix}")
    return found


@pytest.mark.parametrize("torn", [b"", b"\x7fELF", b"\x7fELF\0code and more"])
def test_a_torn_binary_is_no_entry(cache: BuildCache, torn: bytes) -> None:
    cache.put(BUILD)
    entry(cache, ".bin").write_bytes(torn)
    assert cache.get(BUILD.key) is None
    cache.put(BUILD)
    assert cache.get(BUILD.key) is not None


@pytest.mark.parametrize("torn", [b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b'"text"', b'{"digest": 1}'])
def test_a_torn_description_is_no_entry(cache: BuildCache, torn: bytes) -> None:
    cache.put(BUILD)
    entry(cache, ".json").write_bytes(torn)
    assert cache.get(BUILD.key) is None


@pytest.mark.parametrize("change", [{"kernels": None}, {"kernels": [{"entry": "k"}]}, {"unknown": 1}])
def test_a_description_of_another_form_is_no_entry(cache: BuildCache, change: dict[str, object]) -> None:
    cache.put(BUILD)
    file = entry(cache, ".json")
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert cache.get(BUILD.key) is None


@pytest.mark.parametrize("suffix", [".bin", ".json"])
def test_half_an_entry_is_no_entry(cache: BuildCache, suffix: str) -> None:
    cache.put(BUILD)
    entry(cache, suffix).unlink()
    assert cache.get(BUILD.key) is None


def test_writers_at_the_same_time_leave_whole_entries(cache: BuildCache) -> None:
    """Each writer's binary says which log it belongs to; a reader may miss, and never sees two of them mixed."""

    def write(number: int) -> None:
        for _ in range(20):
            cache.put(replace(BUILD, log=str(number), binary=str(number).encode() * 5000))

    def read(_: int) -> int:
        found = [cache.get(BUILD.key) for _ in range(100)]
        for build in found:
            assert build is None or build.binary == build.log.encode() * 5000
        return len(found)

    with ThreadPoolExecutor(6) as pool:
        written = [pool.submit(write, n) for n in range(4)]
        assert list(pool.map(read, range(2))) == [100, 100]
        for future in written:
            future.result()
    cache.put(BUILD)
    assert cache.get(BUILD.key) is not None
    assert {f.suffix for f in cache.folder.rglob("*") if f.is_file()} == {".bin", ".json"}  # nothing temporary is left


def test_the_cache_s_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNESMITH_CACHE", str(tmp_path / "mine"))
    assert BuildCache().folder == tmp_path / "mine" / "builds"
    monkeypatch.delenv("TUNESMITH_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert BuildCache().folder == tmp_path / ".cache" / "tunesmith" / "builds"
