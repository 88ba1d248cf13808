"""`import tunesmith as ts`: which names are public, that each is there and documented, and what `ts.check` says."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import tunesmith as ts
from tunesmith.errors import UsageError, VerdictError
from tunesmith.mutants import Mutant
from tunesmith.review import FileReport, Report

ROOT = Path(__file__).parent.parent
SOFTMAX = ROOT / "suite" / "row_softmax"
NAMES = {
    "Compilers", "Cuda", "Evaluator", "InOut", "Input", "OpenCL", "Output", "Pairing", "Result", "Run", "Scalar",
    "Space", "Status", "Task", "Template", "Trial", "TunesmithError", "Workload", "all_devices", "check", "dynamic",
    "find_device", "free", "note", "play", "static", "tune",
}  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert set(ts.__all__) == NAMES == set(ts.PUBLIC)
    assert list(ts.__all__) == sorted(ts.__all__)
    assert set(dir(ts)) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_name_is_fetched_from_its_module(name: str) -> None:
    module, _, attribute = ts.PUBLIC[name].partition(":")
    assert getattr(ts, name) is getattr(importlib.import_module(f"tunesmith.{module}"), attribute)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "src" / "tunesmith" / "__init__.py").read_text())
    (block,) = [n for n in tree.body if isinstance(n, ast.If)]
    seen = {
        alias.name: f"{node.module.removeprefix('tunesmith.')}:{alias.name}"  # type: ignore[union-attr]
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == ts.PUBLIC


def test_each_name_is_documented() -> None:
    table = (ROOT / "docs" / "library.md").read_text().partition("\n## Names\n")[2]
    listed = [name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Tasks'"):
        _ = ts.Tasks


def test_no_module_has_a_public_name() -> None:
    """Importing it would put the module in the name's place."""
    package = Path(ts.__file__ or "").parent
    modules = {p.stem for p in package.glob("*.py")} | {p.name for p in package.iterdir() if p.is_dir()}
    assert "checker" in modules
    assert not modules & set(ts.PUBLIC)


# --- check -------------------------------------------------------------------------------------------------------------


def file_report(name: str, status: ts.Status | None, reason: str = "") -> FileReport:
    return FileReport(name, "template", {}, status, reason)


def test_a_report_raises_for_the_first_file_that_is_not_right() -> None:
    wrong = file_report("b", ts.Status.WRONG, "decode: out: 3 of 9 elements off")
    files = (file_report("a", ts.Status.OK), file_report("gone", None), wrong, file_report("c", ts.Status.CRASHED))
    with pytest.raises(
        ts.TunesmithError, match=r"^b \(template\) is wrong: decode: out: 3 of 9 elements off$"
    ) as raised:
        Report((), files).raise_for_status()
    assert isinstance(raised.value, VerdictError)


def test_a_report_raises_where_the_check_itself_is_too_weak() -> None:
    report = Report((Mutant("all zeros", "out", False),), (file_report("a", ts.Status.OK),))
    with pytest.raises(VerdictError, match=r"too weak for this task: it accepts all zeros \(out\)"):
        report.raise_for_status()


def test_a_right_report_is_given_back() -> None:
    report = Report((Mutant("all zeros", "out", True),), (file_report("a", ts.Status.OK), file_report("gone", None)))
    assert report.right
    assert report.raise_for_status() is report


def test_a_device_that_runs_nothing_cannot_check() -> None:
    with pytest.raises(UsageError, match="null:sm_90 cannot run a kernel"):
        ts.check(ts.Task.load(SOFTMAX), device="null:sm_90")


TWICE = """/* tunesmith 1
entry = "twice"
grid = ["T"]
block = ["64"]
args = ["x", "y", "T"]
*/
#define DIM_D 64  // dim: d
__kernel void twice(__global const float* x, __global float* y, int T) {
  const int i = get_group_id(0) * DIM_D + get_local_id(0);
  y[i] = 2.0f * x[i];
}
"""


def template(name: str, value: str) -> ts.Template:
    return ts.Template.parse(TWICE.replace("2.0f * x[i]", value), name=name, language="opencl")


@pytest.mark.opencl
def test_check_verifies_templates_and_says_what_is_wrong() -> None:
    task = ts.Task(
        "twice", dims={"T": ts.dynamic, "d": ts.static}, arguments=[ts.Input("x", "f32[T, d]"), ts.Output("y", "f32[T, d]")],
        workloads=[ts.Workload("w", T=7, d=64)], rows="T", batch_invariant=True,
    )  # fmt: skip
    task.reference(lambda x: 2 * x)
    right, wrong = template("right", "2.0f * x[i]"), template("wrong", "3.0f * x[i]")
    varies = template("varies", "T == 4 ? nextafter(2.0f * x[i], INFINITY) : 2.0f * x[i]")
    device = ts.find_device("opencl:0")
    try:
        assert ts.check(task, right, device=device, timed=False).raise_for_status().files[0].name == "right"
        report = ts.check(task, right, varies, wrong, device=device, timed=False)
        assert [(f.name, f.status) for f in report.files] == [("right", "ok"), ("varies", "wrong"), ("wrong", "wrong")]
        with pytest.raises(
            VerdictError, match=r"^varies \(template\) is wrong: w .+batch_invariant, T=4: 4 of 4 rows of y have"
        ):
            report.raise_for_status()
        with pytest.raises(UsageError, match=r"row\.cu is cuda; this device takes opencl"):
            ts.check(task, ts.Template.load(SOFTMAX / "templates" / "row.cu"), device=device)
    finally:
        device.close()
