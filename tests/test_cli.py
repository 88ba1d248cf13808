"""The command line: what it refuses and in which words, and what a person sees in a narrow terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conftest import Command
from tunesmith import device, front, review
from tunesmith.backends import opencl, opencl_runtime
from tunesmith.errors import MissingError
from tunesmith.limits import named

TASK = """
from tunesmith.task import Output, Task, Workload, dynamic
task = Task(name="bare", dims={"T": dynamic}, arguments=[Output("out", "f32[T]")], workloads=[Workload("w", T=1)])

@task.reference
def reference(T):
    return [0.0] * T
"""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From now on output goes to a terminal so wide."""

    def be(width: int) -> None:
        monkeypatch.setattr(
            front, "_console", lambda: Console(width=width, force_terminal=True, highlight=False, color_system=None)
        )

    return be


# --- input -------------------------------------------------------------------------------------------------------------


def test_without_a_verb_it_prints_help(command: Command) -> None:
    code, out, err = command()
    assert (code, err) == (0, "")
    assert out.startswith("Usage: tunesmith")


@pytest.mark.parametrize("threads", ["0", "-2"])
def test_threads_are_one_or_more(command: Command, threads: str) -> None:
    code, _, err = command("check", "nowhere", "--threads", threads)
    assert code == 2
    assert f"'--threads': {threads} is not in the range x>=1" in err


def test_a_configuration_gives_each_name_once(command: Command) -> None:
    code, _, err = command("check", "nowhere", "--config", "VEC=16,BLOCK=1, VEC=4")
    assert (code, err) == (2, "error: --config gives 'VEC' twice\n")


def test_a_configuration_needs_a_template(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines/zero.cu").write_text(
        '/* tunesmith 1\nentry = "zero"\ngrid = [1]\nblock = [1]\nargs = ["out"]\n*/\n'
        'extern "C" __global__ void zero(float* out) {}\n'
    )
    monkeypatch.setattr(front.Device, "limits", named("sm_90"))
    monkeypatch.setattr(front, "find_device", lambda *_, **__: front.Device("cuda", 0))
    monkeypatch.setattr(review, "load", lambda _: None)
    code, _, err = command("check", str(tmp_path), "--config", "VEC=4")
    assert (code, err) == (2, "error: --config is for templates; the task bare has none in cuda\n")


@pytest.mark.parametrize("verb", ["space", "check"])
def test_a_template_is_a_file(command: Command, tmp_path: Path, verb: str) -> None:
    (tmp_path / "task.py").write_text(TASK)
    task = [str(tmp_path)] if verb == "check" else []
    code, _, err = command(verb, *task, str(tmp_path))
    assert (code, err) == (2, f"error: {tmp_path} is a folder; a template is a .cu or .cl file\n")
    code, _, err = command(verb, *task, f"{tmp_path}/k.cu")
    assert (code, err) == (2, f"error: no such file: {tmp_path}/k.cu\n")


@pytest.mark.parametrize(
    ("makefile", "hint"),
    [
        ("opencl: venv\n", "make opencl (needs no root)"),
        ("venv:\n", f"python -m {opencl_runtime.MODULE} --fetch (needs no root)"),
        (None, f"python -m {opencl_runtime.MODULE} --fetch (needs no root)"),
    ],
)
def test_the_way_to_a_runtime_is_make_in_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, makefile: str | None, hint: str
) -> None:
    def find() -> None:
        raise MissingError("none", hint=f"python -m {opencl_runtime.MODULE} --fetch (needs no root)")

    if makefile is not None:
        (tmp_path / "Makefile").write_text(makefile)
    monkeypatch.setattr(device, "__file__", str(tmp_path / "src/tunesmith/device.py"))
    monkeypatch.setattr(opencl_runtime, "find", find)
    with pytest.raises(MissingError) as missing:
        device.find_device("opencl:0")
    assert missing.value.hint == hint


# --- output ------------------------------------------------------------------------------------------------------------


def test_a_log_names_no_temporary_file() -> None:
    said = "error: /root/my cache/pocl-kernels/tempfile_7Wc-yB.cl:15:10: unknown type\nIn file included from /a/b.h:1:"
    assert opencl.readable(said) == "error: kernel.cl:15:10: unknown type\nIn file included from /a/b.h:1:"


def checked(status: str, error: float) -> dict[str, Any]:
    return {"workload": "w", "status": status, "error": error}


def file(name: str, status: str, *checks: dict[str, Any], registers: int = 0, times: int = 0) -> dict[str, Any]:
    cells = [{"workload": f"workload-{i}", "time_us": 12.5, "target_fraction": 0.5} for i in range(times)]
    return {"name": name, "kind": "template", "status": status, "reason": "", "kernels": [{"registers": registers}],
            "not_served": {}, "checks": list(checks), "cells": cells}  # fmt: skip


def shown(*files: dict[str, Any]) -> dict[str, Any]:
    return {
        "tester": {"mutants": 9, "passed": [], "skipped": []},
        "device": {"id": "opencl:0", "name": "a CPU"},
        "files": files,
    }


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_failure_shows_an_error_only_where_it_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    good = checked("ok", 0.25)
    front.show_check(
        shown(
            file("right", "ok", good, checked("ok", 0.0)),
            file("exact", "ok", checked("ok", 0.0)),
            file("unbuilt", "build_failed"),
            file("crashed", "crashed", good, checked("crashed", 0.0)),
            file("off", "wrong", good, checked("wrong", 7.5)),
        )
    )
    errors = {words[0]: words[3] for words in lines(capsys) if "(template)" in words}
    assert errors == {"right": "0.25", "exact": "0.00", "unbuilt": "–", "crashed": "–", "off": "7.50"}


def test_registers_and_times_are_named_where_there_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    front.show_check(shown(file("a", "ok", checked("ok", 0.1))))
    out = capsys.readouterr().out
    assert "registers" not in out
    assert "times in" not in out
    front.show_check(shown(file("a", "ok", registers=32, times=1), file("b", "ok", times=1)))
    out = capsys.readouterr().out
    assert "registers" in out
    assert "times in µs" in out


def test_a_table_wider_than_the_terminal_has_a_line_per_workload(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    answer = shown(file("one", "ok", checked("ok", 0.1), times=4), file("two", "wrong"))
    terminal(120)
    front.show_check(answer)
    assert ["verdict", "error", "workload-0", "workload-1", "workload-2", "workload-3"] in lines(capsys)
    terminal(80)
    front.show_check(answer)
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert ["verdict", "workload", "error", "time"] in rows
    assert ["one", "(template)", "ok", "workload-0", "0.10", "12.50", "(0.50)"] in rows
    assert ["workload-3", "12.50", "(0.50)"] in rows
    assert ["two", "(template)", "wrong", "–", "–", "–"] in rows
    assert max(map(len, out.splitlines())) <= 80


def test_devices_in_a_narrow_terminal_are_lines(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    one = {"id": "opencl:0", "name": "pthread-skylake-avx512-AMD EPYC", "driver": "3.1+debian", "calibration": None}
    answer = {"devices": [{**one, "limits": {"sms": 2, "max_shared_bytes": 1 << 20}}], "missing": []}
    terminal(80)
    front.show_devices(answer)
    out = capsys.readouterr().out.splitlines()
    assert out[:5] == [
        "device: opencl:0", "name: pthread-skylake-avx512-AMD EPYC", "driver: 3.1+debian", "units: 2", "shared: 1024 KiB"
    ]  # fmt: skip
    terminal(120)
    front.show_devices(answer)
    assert ["device", "name", "driver", "units", "shared", "copy", "f32", "bf16", "launch"] in lines(capsys)


def test_notes_wrap_at_words_in_a_terminal_only(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    note = " ".join(["workload"] * 30)
    front.say(note)
    assert capsys.readouterr().out == f"{note}\n"
    terminal(80)
    front.say(note)
    out = capsys.readouterr().out
    assert set(out.split()) == {"workload"}
    assert max(map(len, out.splitlines())) <= 80
