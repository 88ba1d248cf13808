"""What several test files share: a small template, the task that it serves, and the answers of models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tunesmith import cli
from tunesmith.device import find_device
from tunesmith.errors import MissingError
from tunesmith.task import Input, Output, Scalar, Task, Workload, dynamic, static
from tunesmith.template import Template

settings.register_profile("tunesmith", deadline=None, database=None)
settings.load_profile("tunesmith")

Command = Callable[..., tuple[int, str, str]]
ANSWERS = Path(__file__).parent / "answers"

SCALE = """/* tunesmith 1
entry = "scale"
grid  = ["ceil_div(T*d, per_block)"]
block = ["BLOCK"]
args  = ["x", "out", "factor", "T"]
[let]
per_block = "BLOCK*VEC"
[require]
"a row holds whole vectors" = "d % VEC == 0"
*/
using io_t = float;  // type: io
#define DIM_D 64  // dim: d
#define BLOCK 128  // tune: 64, 128, 256; threads per block
constexpr int VEC = 1;  // tune: 1, 2, 4; elements per access
#define HINT 0  // tune: 0, 1; when VEC == 4; how loads are cached
extern "C" __global__ void scale(const io_t* x, io_t* out, float factor, int T) {}
"""


@pytest.fixture
def scale_template() -> Template:
    return Template.parse(SCALE, name="scale", language="cuda")


@pytest.fixture
def scale_task() -> Task:
    return Task(
        name="scale",
        dims={"T": dynamic, "d": static},
        types={"io": ["f32", "bf16"]},
        arguments=[Input("x", "io[T, d]"), Output("out", "io[T, d]"), Scalar("factor", "f32", values=0.5)],
        workloads=[Workload("small", T=16, d=64, io="f32"), Workload("large", T=4096, d=128, io="bf16")],
    )


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Exit code, stdout and stderr of a command line."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tunesmith", *arguments])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
        return (code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def opencl_device() -> None:
    """Skips where no OpenCL runtime builds."""
    try:
        find_device("opencl:0").close()
    except MissingError as missing:
        pytest.skip(missing.message)


def templates_among_answers() -> list[Path]:
    files = sorted([*ANSWERS.glob("*/*.cu"), *ANSWERS.glob("*/*.cl")])
    return [file for file in files if "/* tunesmith" in file.read_text()]
