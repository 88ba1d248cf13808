"""Children that crash, hang, write garbage or flood: each costs one answer, none reaches the parent."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunesmith import process
from tunesmith.process import Child, Died, clean_environment, ready

HERE = str(Path(__file__).parent)


def handle(message: Any) -> Any:
    """What the children of these tests do; runs in the child."""
    match message:
        case ("raise", text):
            raise RuntimeError(text)
        case ("exit", code):
            os._exit(code)
        case ("signal", number):
            os.kill(os.getpid(), number)
        case ("sleep", seconds):
            time.sleep(seconds)
        case ("environment",):
            return {"variables": dict(os.environ), "proc": Path("/proc/self/environ").read_bytes().decode()}
        case ("say", text, code):
            os.write(1, text.encode())
            os._exit(code)
        case ("flood", size):
            try:
                for _ in range(size >> 16):
                    os.write(1, b"x" * (1 << 16))
            except OSError as error:
                return {"stopped": error.errno}
        case ("pipe", data):
            os.write(pipe_to_parent(), data)
            time.sleep(60)
        case ("half", data):
            os.write(pipe_to_parent(), data)
            os._exit(7)
        case ("grandchild",):
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
            return {"pid": pid}
        case ("parts", count):
            return {"count": count}, tuple(bytes([i]) * i for i in range(count))
        case ("answer", answer):
            return answer
    return {"got": message, "pid": os.getpid()}


def pipe_to_parent() -> int:
    return int(sys.argv[3])


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    environment = {"PYTHONPATH": os.pathsep.join([HERE, str(Path(process.__file__).parent.parent)])}
    with Child("test_process:handle", environment=environment, folder=tmp_path / "child") as child:
        yield child


def died(child: Child, message: Any, timeout: float = 30) -> Died:
    with pytest.raises(Died) as caught:
        child.ask(message, timeout)
    return caught.value


def assert_works_again(child: Child) -> None:
    assert child.ask("hello", 30).fields["got"] == "hello"


# --- the honest way ----------------------------------------------------------------------------------------------------


def test_messages_there_and_back(child: Child) -> None:
    first, second = child.ask({"a": (1, 2)}, 30), child.ask("again", 30)
    assert first.fields["got"] == {"a": [1, 2]}
    assert first.fields["pid"] == second.fields["pid"] != os.getpid()
    assert child.ask(("parts", 3), 30).parts == (b"", b"\1", b"\2\2")
    assert child.alive
    assert child.busy_since is None


def test_large_messages(child: Child) -> None:
    text = "x" * (1 << 20)
    assert child.ask(text, 30).fields["got"] == text


def test_ready_gives_the_children_that_have_answered(child: Child) -> None:
    with Child("test_process:handle", environment=child.environment) as other:
        other.send(("sleep", 60))
        child.send("now")
        assert ready([child, other], 30) == [child]
        assert child.receive(1).fields["got"] == "now"
        assert ready([other], 0) == []


def test_an_exception_is_an_answer(child: Child) -> None:
    fields = child.ask(("raise", "no such thing"), 30).fields
    assert fields["error"] == "RuntimeError: no such thing"
    assert "Traceback" in fields["traceback"]
    assert_works_again(child)


# --- a clean environment -----------------------------------------------------------------------------------------------


def test_secrets_of_the_shell_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "SSH_AUTH_SOCK",
        "LD_PRELOAD",
    ):
        monkeypatch.setenv(name, "s3cret")
    environment = clean_environment({"GIVEN": "yes"})
    assert "s3cret" not in environment.values()
    assert environment["GIVEN"] == "yes"
    assert environment["PATH"] == os.environ["PATH"]


def test_a_child_has_no_secret_in_its_own_memory(monkeypatch: pytest.MonkeyPatch, child: Child) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "s3cret")
    fresh = Child("test_process:handle", environment={"PYTHONPATH": child.environment["PYTHONPATH"]})
    with fresh:
        fields = fresh.ask(("environment",), 30).fields
    assert "ANTHROPIC_API_KEY" not in fields["variables"]
    assert "s3cret" not in fields["proc"]
    assert "PYTHONPATH" in fields["proc"]


# --- every way to fail -------------------------------------------------------------------------------------------------


def test_a_child_that_ends(child: Child) -> None:
    assert str(died(child, ("exit", 3))) == "the process ended with exit code 3"
    assert_works_again(child)


def test_a_child_that_crashes(child: Child) -> None:
    error = died(child, ("signal", 11))
    assert str(error) == "the process ended with signal SIGSEGV"
    assert not error.hung
    assert_works_again(child)


def test_the_last_words_of_a_child_are_kept(child: Child) -> None:
    assert str(died(child, ("say", "x" * 9000 + " assertion failed", 6))).endswith(" assertion failed")
    assert len(str(died(child, ("say", "x" * 9000, 6)))) < process.OUTPUT_KEPT + 100


def test_a_child_that_hangs_is_killed(child: Child) -> None:
    error = died(child, ("sleep", 60), timeout=0.2)
    assert error.hung
    assert not child.alive
    assert_works_again(child)


def test_what_a_child_started_ends_with_it(child: Child) -> None:
    pid = child.ask(("grandchild",), 30).fields["pid"]
    child.kill()
    for _ in range(500):
        state = Path(f"/proc/{pid}/stat").read_text().split()[2] if Path(f"/proc/{pid}").exists() else "gone"
        if state in ("gone", "Z"):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still there: {state}")


def test_a_function_that_is_not_there(tmp_path: Path) -> None:
    with Child("tunesmith.process:nothing", folder=tmp_path) as child:
        assert "has no attribute 'nothing'" in str(died(child, 1))


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    "data",
    [
        b"garbage that is no frame at all",
        framed(b"not json"),
        framed(b"\xff\xfe"),
        framed(b"[1, 2]"),
        framed(b"null"),
        framed(b"17"),
        framed(b'{"parts": "many"}'),
        framed(b'{"parts": -1}'),
        framed(b'{"parts": 1e9}'),
        framed(b'{"parts": 1000000000}'),
        framed(b'{"parts": {}}'),
        framed(b"[" * 100_000),
        b"\xff\xff\xff\xff" + (1 << 62).to_bytes(8, "big"),
    ],
    ids=lambda data: repr(data[:24]),
)
def test_an_answer_that_is_none(child: Child, data: bytes) -> None:
    assert "an answer that cannot be read" in str(died(child, ("pipe", data)))
    assert_works_again(child)


@pytest.mark.parametrize(
    "data", [b"\0", framed(b"{}" * 40)[:30], framed(b'{"parts": 1}'), framed(b'{"parts": 1}') + b"\0"]
)
def test_an_answer_that_never_ends(child: Child, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(process, "ANSWER_SECONDS", 0.3)
    error = died(child, ("pipe", data))
    assert error.hung
    assert "an answer that did not end" in str(error)
    assert_works_again(child)


@pytest.mark.parametrize("data", [b"\0", framed(b"{}" * 40)[:30], framed(b'{"parts": 1}')])
def test_a_child_that_ends_in_the_middle_of_its_answer(child: Child, data: bytes) -> None:
    assert str(died(child, ("half", data))) == "the process ended with exit code 7"
    assert_works_again(child)


def test_an_answer_that_is_no_json_in_the_making(child: Child) -> None:
    assert "the process ended with exit code 1" in str(died(child, ("answer", {"a": {1, 2}})))
    assert_works_again(child)


def test_a_flood_of_output_is_cut_off(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "FILE_BYTES", 1 << 20)
    assert child.ask(("flood", 8 << 20), 30).fields["stopped"]
    assert sum(f.stat().st_size for f in child.folder.iterdir()) <= 1 << 20  # type: ignore[union-attr]


def test_a_flood_to_nowhere_does_no_harm(child: Child) -> None:
    with Child("test_process:handle", environment=child.environment) as quiet:
        assert quiet.ask(("flood", 8 << 20), 30).fields.get("got") is not None
