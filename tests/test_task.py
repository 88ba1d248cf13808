"""What a task may declare, what it refuses and in which words, and what it knows about its workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunesmith.data import draw, expected
from tunesmith.dtype import dtype
from tunesmith.errors import TaskError
from tunesmith.task import InOut, Input, Output, Scalar, Setting, Task, Workload, dynamic, note, static
from tunesmith.tolerance import L2, Close, Exact
from tunesmith.values import Choice, Normal, Range


def make(**changed: Any) -> Task:
    declared: dict[str, Any] = {
        "dims": {"T": dynamic, "d": static},
        "types": {"io": ["bf16", "f16"]},
        "arguments": [Input("x", "io[T, d]"), Output("out", "io[T, d]")],
        "workloads": [Workload("decode", T=16, d=64, io="bf16")],
    }
    return Task(name="t", **(declared | changed))


def refused(**changed: Any) -> str:
    with pytest.raises(TaskError) as caught:
        make(**changed)
    return str(caught.value)


def with_argument(*more: Any, **changed: Any) -> dict[str, Any]:
    return {"arguments": [Input("x", "io[T, d]"), Output("out", "io[T, d]"), *more], **changed}


# --- settings and workloads --------------------------------------------------------------------------------------------


def test_a_setting_is_the_static_dims_and_types_of_a_workload() -> None:
    workloads = [
        Workload("a", T=1, d=64, io="bf16"),
        Workload("b", T=2, d=64, io=dtype("bf16")),
        Workload("c", T=1, d=128, io="fp16"),
    ]
    task = make(workloads=workloads)
    first, second = task.settings()
    assert first == task.setting(workloads[1]) == Setting((("d", 64),), (("io", "bf16"),))
    assert str(second) == "d=128 io=f16"
    assert len({first, task.setting(workloads[0])}) == 1
    assert task.settings(workloads[2:]) == (second,)
    assert str(Setting()) == "any"


def test_a_workload_takes_whole_numbers_of_any_kind_and_normalises_types() -> None:
    workload = Workload("w", T=np.int64(4), io="bfloat16", dims={"type": 3})
    assert dict(workload.dims) == {"T": 4, "type": 3}
    assert type(workload.dims["T"]) is int
    assert dict(workload.types) == {"io": "bf16"}
    with pytest.raises(TypeError):
        workload.dims["T"] = 5  # type: ignore[index]
    with pytest.raises(TaskError, match="a dim is a whole number"):
        Workload("w", T=1.5)
    with pytest.raises(TaskError, match="workload w: io = 'bf61' is neither a type nor a whole number"):
        Workload("w", io="bf61")
    with pytest.raises(TaskError, match=r"onn = 'cpu' is neither .*; known words: on, weight, values, dims, types"):
        Workload("w", n=4, onn="cpu")


def test_values_of_a_workload_come_before_those_of_the_argument() -> None:
    argument = Input("lengths", "i32[T]", values=Range(1, 9))
    workload = Workload("w", T=1, d=64, io="bf16", values={"lengths": Choice((3,))})
    task = make(**with_argument(argument, workloads=[workload, Workload("v", T=1, d=64, io="bf16")]))
    assert task.values_of(argument, workload) == Choice((3,))
    assert task.values_of(argument, task.workloads[1]) == Range(1, 9)
    assert task.values_of(task.argument("x"), workload) == Normal()


def test_alignment_is_the_argument_s_or_the_task_s() -> None:
    task = make(**with_argument(Input("y", "io[T]", align=64), align=32))
    assert task.align_of(task.argument("y")) == 64
    assert task.align_of(task.argument("x")) == 32


# --- shapes ------------------------------------------------------------------------------------------------------------


def test_shapes_and_strides() -> None:
    dims = {"T": 3, "d": 8}
    assert Input("x", "f32[T, 2*d]").shape(dims) == (3, 16)
    assert Input("x", "f32[T, 2*d]").strides(dims) == (16, 1)
    assert Input("x", "f32[T, d]", stride="2*d").strides(dims) == (16, 1)
    assert Input("x", "f32[T, d]", stride=("1", "T")).strides(dims) == (1, 3)
    assert Input("x", "f32[T, 2, d]").strides(dims) == (16, 8, 1)
    assert Input("x", "f32[]").shape(dims) == ()
    assert Input("x", "f32[max(T, d), 1]").shape(dims) == (8, 1)
    assert Input("x", "f32[T]").shape({"T": 0}) == (0,)


def test_an_array_and_a_scalar_are_told_apart() -> None:
    assert Scalar("eps", "f32", values=1e-6).is_scalar
    with pytest.raises(TaskError, match=r"argument x: 'io' is not type\[shape\]"):
        Input("x", "io")
    with pytest.raises(TaskError, match=r"argument eps: 'f32\[1\]' is not a type alone"):
        Scalar("eps", "f32[1]")


@pytest.mark.parametrize(
    ("spec", "options", "rule"),
    [
        ("io[T d]", {}, "argument x: in 'T d': unexpected"),
        ("io[T,,d]", {}, "argument x: 'io[T,,d]' has an empty axis"),
        ("io(T)", {}, "is not type[shape]"),
        ("io[T]", {"stride": "2*T"}, "2 strides for 1 axes"),
        ("io[T, d]", {"stride": ("d",)}, "1 strides for 2 axes"),
        ("io[T, d]", {"stride": "2*"}, "unexpected the end"),
        ("io[T]", {"residency": "hot"}, "unknown residency 'hot'; known: cold, warm"),
        ("io[T]", {"partial": True}, "partial and tolerance belong to what is written"),
        ("io[T]", {"tolerance": "exact"}, "partial and tolerance belong to what is written"),
    ],
)
def test_mistakes_in_an_argument(spec: str, options: dict[str, Any], rule: str) -> None:
    with pytest.raises(TaskError) as caught:
        Input("x", spec, **options)
    assert rule in str(caught.value)


# --- validation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        (
            {"dims": {"T": "dyanmic", "d": static}},
            "task t: T: unknown kind of dim 'dyanmic'; known: dynamic, free, note",
        ),
        ({"workloads": []}, "task t: no workloads"),
        ({"arguments": [Input("x", "io[T]")]}, "no argument is written"),
        ({"score": "tmie"}, "unknown score 'tmie'; known: speedup, time"),
        ({"rows": "B"}, "rows: unknown dim 'B'; known: T, d"),
        ({"batch_invariant": True}, "batch_invariant needs rows"),
        ({"batch_invariant": True, "rows": "d"}, "batch_invariant needs rows, a dim that is not static"),
        ({"batch_invariant": True, "rows": "T", "arguments": [Output("out", "io[d]")]}, "no output has the axis T"),
        ({"batch_invariant": True, "rows": "T", "deterministic": False}, "batch_invariant and deterministic=False"),
        ({"rows": "d", "arguments": [Output("out", "io[T, 2*d]")]}, "the axis '2*d' is not one entry per row of d"),
        ({"bytes_moved": "2*T*"}, "bytes_moved: in '2*T*': unexpected the end"),
        ({"flops": "2*T*K"}, "flops: unknown dim 'K'"),
        ({"ranged": "B"}, "ranged: unknown dim 'B'"),
        ({"types": {"io": "bf61"}}, "unknown type 'bf61'"),
        ({"types": {"f32": ["bf16"]}}, "the type symbol 'f32' is the name of a type"),
        ({"types": {"float": ["bf16"]}}, "the type symbol 'float' is the name of a type"),
        ({"dims": {"T": dynamic, "d": static, "min": static}}, "'min' has a meaning of its own"),
        ({"dims": {"T": dynamic, "d": static, "sms": static}}, "'sms' has a meaning of its own"),
        ({"dims": {"T": dynamic, "d": static, "weight": static}}, "'weight' has a meaning of its own"),
        (with_argument(Input("x", "io[T]")), "two arguments named 'x'"),
        (with_argument(Input("T", "io[d]")), "'T' names two things"),
        (with_argument(Input("io", "io[d]")), "'io' names two things"),
        (with_argument(Input("y", "oi[T]")), "argument y: unknown type 'oi'"),
        (with_argument(Input("y", "io[K]")), "the shape of y, 'io[K]': K has no value here"),
        (with_argument(Input("y", "io[T - 17]")), "y has the shape (-1,)"),
        (with_argument(Input("y", "io[T, d]", stride="1")), "elements overlap"),
        (with_argument(Input("y", "io[T]", align=24)), "align=24 is not a power of two"),
        (with_argument(Input("y", "i32[T]")), "argument y: an array of whole numbers needs values"),
        (with_argument(Scalar("eps", "f32")), "argument eps: a scalar needs values"),
        (with_argument(Output("y", "io[T]", tolerance="colse")), "unknown tolerance 'colse'"),
        (with_argument(Input("y", "io[T]", values="normal")), "values='normal': write Normal()"),
    ],
)
def test_mistakes_in_a_task(changed: dict[str, Any], rule: str) -> None:
    assert rule in refused(**changed)


@pytest.mark.parametrize(
    ("workload", "rule"),
    [
        (Workload("w", d=64, io="bf16"), "workload w: no value for the dim 'T'"),
        (Workload("w", T=1, d=64), "workload w: no value for the type 'io'"),
        (Workload("w", T=1, d=64, K=3, io="bf16"), "workload w: unknown dim 'K'; known: T, d"),
        (Workload("w", T=1, d=64, io="bf16", acc="f32"), "unknown type 'acc'; known: io"),
        (Workload("w", T=-1, d=64, io="bf16"), "T = -1; a dim is zero or more"),
        (Workload("w", T=1, d=64, io="f32"), "io = 'f32' is not among bf16, f16"),
        (Workload("w", T=1, d=64, io="bf16", weight=0), "weight 0 is not above zero"),
        (Workload("w", T=1, d=64, io="bf16", weight=float("nan")), "weight nan is not above zero"),
        (Workload("w", T=1, d=64, io="bf16", on="tpu"), "unknown kind of device 'tpu'; known: cpu, gpu"),
        (Workload("w", T=1, d=64, io="bf16", values={"y": 1}), "unknown argument 'y'; known: out, x"),
        (Workload("w", T=1, d=64, io="bf16", values={"out": 1}), "values for out, which is only written"),
        (Workload("w", T=1, d=64, io="bf16", values={"x": "ones"}), "values='ones'"),
        (Workload("decode", T=1, d=64, io="bf16"), "two workloads named 'decode'"),
    ],
)
def test_mistakes_in_a_workload(workload: Workload, rule: str) -> None:
    good = Workload("decode", T=16, d=64, io="bf16")
    assert rule in refused(workloads=[good, workload])
    assert rule in refused(held_out=[workload])


def test_a_workload_may_be_empty() -> None:
    assert make(workloads=[Workload("none", T=0, d=64, io="bf16")]).workloads[0].dims["T"] == 0


def test_whole_numbers_need_no_values_where_every_workload_gives_them() -> None:
    workload = Workload("w", T=2, d=64, io="bf16", values={"ids": Range(0, 1)})
    assert make(**with_argument(Input("ids", "i32[T]"), workloads=[workload]))
    assert "needs values" in refused(**with_argument(Input("ids", "i32[T]"), held_out=[workload]))


def test_notes_describe_the_data_and_types_may_be_given_as_one_name() -> None:
    task = make(dims={"T": dynamic, "d": static, "total": note}, types={"io": "fp16"}, flops="2*total",
                workloads=[Workload("w", T=1, d=64, total=9, io="f16")])  # fmt: skip
    assert task.dims_of_kind(note) == ("total",)
    assert task.types == {"io": ("f16",)}


def test_tolerances_of_outputs() -> None:
    task = make(**with_argument(InOut("y", "io[T, d]", tolerance=L2(4e-3)), Output("n", "i32[T]")))
    types = {"io": "bf16"}
    assert isinstance(task.argument("out").judged_by(types), Close)
    assert task.argument("y").judged_by(types) == L2(4e-3)
    assert task.argument("n").judged_by(types) == Exact()
    assert [a.name for a in task.outputs] == ["out", "y", "n"]


# --- reference and baselines -------------------------------------------------------------------------------------------


def test_a_reference_asks_for_arguments_and_dims_only() -> None:
    task = make()
    with pytest.raises(TaskError, match=r"the reference asks for 'z'; unknown argument 'z'; known: T, d, out, x"):
        task.reference(lambda x, z: x)
    task.reference(lambda x, T: x)
    with pytest.raises(TaskError, match="a second reference"):
        task.reference(lambda x: x)


def test_baselines_have_names_of_their_own_and_known_arrays() -> None:
    task = make()

    @task.baseline("eager", arrays="torch")
    def eager(x: Any, out: Any) -> None: ...

    assert task.baselines["eager"].function is eager
    with pytest.raises(TaskError, match="two baselines named 'eager'"):
        task.baseline("eager", arrays="torch")
    with pytest.raises(TaskError, match="unknown kind of arrays 'jax'; known: cupy, numpy, torch"):
        task.baseline("other", arrays="jax")


# --- loading -----------------------------------------------------------------------------------------------------------

TASK = """
from __future__ import annotations
from dataclasses import dataclass
from tunesmith.task import Output, Task, Workload, dynamic

@dataclass
class Own:
    n: int

task = alias = Task(name="loaded", dims={"T": dynamic}, arguments=[Output("out", "f32[T]")], workloads=[Workload("w", T=1)])
"""
REFERENCE = """
@task.reference
def zeros(T):
    return [0.0] * T
"""


def load(folder: Path, text: str) -> Task:
    (folder / "task.py").write_text(text)
    return Task.load(folder)


def test_load_runs_a_task_folder(tmp_path: Path) -> None:
    task = load(tmp_path, TASK + REFERENCE)
    assert task.name == "loaded"
    assert task.folder == tmp_path.resolve()
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "a.cu").touch()
    assert [f.name for f in task.files("templates", "cuda")] == ["a.cu"]
    assert task.files("baselines", "opencl") == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (TASK, "task loaded has no reference"),
        (REFERENCE.replace("@task.reference", ""), "makes 0 tasks; it must make one"),
        (TASK + REFERENCE + TASK.partition("\n\n")[2].replace("task = alias", "other"), "makes 2 tasks"),
        ("import nothing_of_this_name", "task.py:1: ModuleNotFoundError"),
        ("x = 1\ny = 1 / 0\n", "task.py:2: ZeroDivisionError"),
        ("import json\n\njson.loads('{')\n", "task.py:3: JSONDecodeError"),
        ("x = 1\nif:\n", "task.py:2: SyntaxError"),
        (TASK.replace("dynamic}", "'dyn'}"), "unknown kind of dim 'dyn'"),
    ],
)
def test_load_says_what_is_wrong_with_a_task_file(tmp_path: Path, text: str, rule: str) -> None:
    with pytest.raises(TaskError) as caught:
        load(tmp_path, text)
    assert rule in str(caught.value)


def test_load_of_a_folder_without_a_task(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"holds no task\.py"):
        Task.load(tmp_path)


BROKEN = """
from tunesmith.task import Input, Output, Task, Workload, dynamic

def outer(draw):
    return inner(draw)

def inner(draw):
    return draw.rng.integers(draw.dims["T"], 0)

task = Task(name="broken", dims={"T": dynamic}, arguments=[Input("x", "i32[T]", values=outer), Output("out", "i32[T]")],
            workloads=[Workload("w", T=2)])

@task.reference
def reference(x):
    return x @ [1, 2, 3]
"""


def test_what_the_tasks_own_code_raises_comes_with_its_line(tmp_path: Path) -> None:
    task = load(tmp_path, BROKEN)
    with pytest.raises(TaskError, match=r"task\.py:8: ValueError: low"):
        draw(task, task.workloads[0], 0)
    with pytest.raises(TaskError, match=r"task\.py:15: ValueError: matmul"):
        expected(task, task.workloads[0], {"x": np.ones(2)})
    task.folder = None
    with pytest.raises(TaskError, match=r"the reference of broken: ValueError: matmul"):
        expected(task, task.workloads[0], {"x": np.ones(2)})
