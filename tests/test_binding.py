"""A template bound to a task: names mean one thing, launches come out as numbers, mistakes are named."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import SCALE
from tunesmith.binding import Binding
from tunesmith.dtype import dtype
from tunesmith.errors import TemplateError
from tunesmith.expression import Expression, Undefined
from tunesmith.launch import Drawn, Local, Number, Pointer, ResolvedLaunch
from tunesmith.limits import named
from tunesmith.naming import Kind
from tunesmith.task import InOut, Input, Scalar, Setting, Task, Workload, dynamic, note, static
from tunesmith.template import Template
from tunesmith.values import Range

H100 = named("sm_90")


def template_of(header: str, body: str = "") -> Template:
    typed = "using io_t = float; // type: io\n"
    return Template.parse(f"/* tunesmith 1\n{header}\n*/\n{typed}{body}", name="t", language="cuda")


def launched(args: str, *, grid: str = '["T"]', more: str = "", body: str = "") -> Template:
    return template_of(f'entry = "k"\ngrid = {grid}\nblock = [32]\nargs = {args}\n[fixed]\nd = 64\n{more}', body)


def attention(**values: Any) -> Task:
    return Task(
        name="attention",
        dims={"T": dynamic, "total": note, "d": static},
        types={"io": ["bf16", "f32"]},
        arguments=[
            Input("q", "io[T, 4, d]", stride=("4*d + 16", "d", "1"), align=32),
            Input("ids", "i64[T]", values=Range(0, "T - 1")),
            InOut("out", "io[T, d]"),
            Scalar("eps", "f32", values=values.get("eps", 1e-6)),
            Scalar("steps", "i32", values=values.get("steps", 3)),
        ],
        workloads=[Workload("w", T=100, total=700, d=64, io="bf16")],
    )


def launch(template: Template, task: Task | None = None, **config: int | str) -> ResolvedLaunch:
    task = task or attention()
    (found,) = Binding(template, task).launches(template.complete(config), task.workloads[0], H100)
    return found


def mistake(template: Template, task: Task | None = None) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        Binding(template, task or attention())
    return caught.value


# --- launches in numbers -----------------------------------------------------------------------------------------------


def test_a_small_template_resolved(scale_template: Template, scale_task: Task) -> None:
    binding = Binding(scale_template, scale_task)
    small, large = scale_task.workloads
    (found,) = binding.launches({"BLOCK": 256, "VEC": 4, "HINT": 1}, large, H100)
    assert found == ResolvedLaunch(
        entry="scale",
        grid=(4096 * 128 // 1024, 1, 1),
        block=(256, 1, 1),
        args=(Pointer("x"), Pointer("out"), Number(dtype("f32"), 0.5), Number(dtype("i32"), 4096)),
    )
    assert (found.threads, found.blocks) == (256, 512)
    (found,) = binding.launches(scale_template.default, small, H100)
    assert found.grid == (8, 1, 1)


def test_arguments_of_every_kind() -> None:
    template = launched(
        '["q", "out", "i64(T*2^0)", "u8(255)", "eps", "steps", "f64(T / 8)", "local(4*d)"]'.replace("*2^0", "")
    )
    args = launch(template).args
    assert args == (
        Pointer("q"),
        Pointer("out"),
        Number(dtype("i64"), 100),
        Number(dtype("u8"), 255),
        Number(dtype("f32"), 1e-6),
        Number(dtype("i32"), 3),
        Number(dtype("f64"), 12.5),
        Local(256),
    )


def test_strides_sizes_and_alignment() -> None:
    names = Binding(launched('["q"]'), attention()).names({}, workload=attention().workloads[0])

    def value(text: str) -> object:
        return Expression.parse(text).evaluate(names, names)

    assert [value(f"stride(q, {axis})") for axis in range(3)] == [4 * 64 + 16, 64, 1]
    assert [value(f"sizeof({name})") for name in ("io", "q", "ids", "f64", "fp16")] == [2, 2, 8, 8, 2]
    assert value("aligned(q, 32)") is True
    assert value("aligned(q, 64)") is False
    assert value("aligned(out, 16)") is True
    with pytest.raises(Undefined, match="q has 3 axes"):
        value("stride(q, 3)")


def test_strides_and_facts_in_a_launch() -> None:
    found = launch(launched('["q", "stride(q,0)"]', grid='["min(T, sms)", "sizeof(io)"]'))
    assert found.args[1] == Number(dtype("i32"), 272)
    assert found.grid == (100, 2, 1)


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_integers_are_32_bits_wide(value: int) -> None:
    assert launch(launched(f'["q", "{value} + 0*T"]')).args[1] == Number(dtype("i32"), value)


@pytest.mark.parametrize(
    ("arg", "rule"),
    [
        ("T * 2147483647", r"is 214748364700, beyond i32; write i64\(T \* 2147483647\)"),
        ("-2147483649", "beyond i32"),
        ("u32(-1)", "beyond u32"),
        ("u8(256)", "beyond u8"),
        ("i8(128)", "beyond i8"),
        ("T / 3", "not a whole number"),
        ("T // 0", "division by zero"),
    ],
)
def test_a_number_that_its_type_cannot_hold(arg: str, rule: str) -> None:
    with pytest.raises(Undefined, match=rule):
        launch(launched(f'["q", "{arg}"]'))


def test_a_cast_is_no_advice_to_cast_again() -> None:
    with pytest.raises(Undefined) as caught:
        launch(launched('["u32(0 - T)"]'))
    assert "i64(" not in str(caught.value)


def test_scalars_keep_what_they_are() -> None:
    template = launched('["eps", "steps"]')
    assert launch(template, attention(eps=float("-inf"))).args[0] == Number(dtype("f32"), float("-inf"))
    assert launch(template, attention(steps=2**31 - 1)).args[1] == Number(dtype("i32"), 2**31 - 1)
    with pytest.raises(Undefined, match="beyond i32"):
        launch(template, attention(steps=2**31))
    assert launch(template, attention(steps=Range(1, 4))).args[1] == Drawn(dtype("i32"), "steps")  # comes with its data


def test_scalars_in_expressions() -> None:
    assert launch(launched('["q"]', grid='["T * steps"]')).grid == (300, 1, 1)


def test_an_infinite_scalar_has_no_value_in_an_expression() -> None:
    with pytest.raises(Undefined, match="eps has no value"):
        launch(launched('["q"]', grid='["T if eps > 0 else 1"]'), attention(eps=float("inf")))


def test_grids_may_be_empty_but_not_negative() -> None:
    assert launch(launched('["q"]', grid='["T - 100"]')).blocks == 0
    with pytest.raises(Undefined, match="negative size"):
        launch(launched('["q"]', grid='["T - 101"]'))


def test_several_launches_some_of_them_only_when() -> None:
    one = '[[launch]]\nentry = "{}"\ngrid = ["T"]\nblock = [32]\nargs = ["out", "parts"]\n'
    header = one.format("split") + one.format("add") + 'when = "SPLITS > 1"\ncooperative = true\n'
    more = (
        '[fixed]\nd = 64\n[workspace]\nparts = {array = "f32[T, SPLITS]", zeroed = true}\nseen = "io[max(T - 200, 0)]"'
    )
    template = template_of(header + more, "#define SPLITS 1 // tune: 1, 4\n")
    task = attention()
    binding, (workload,) = Binding(template, task), task.workloads
    assert [x.entry for x in binding.launches({"SPLITS": 1}, workload, H100)] == ["split"]
    split, add = binding.launches({"SPLITS": 4}, workload, H100)
    assert split.args == (Pointer("out"), Pointer("parts"))
    assert (add.entry, add.cooperative, split.cooperative) == ("add", True, False)
    parts, seen = binding.workspaces({"SPLITS": 4}, workload, H100)
    assert (parts.name, parts.dtype.name, parts.size, parts.zeroed) == ("parts", "f32", 400, True)
    assert (seen.dtype.name, seen.size, seen.zeroed) == ("bf16", 0, False)


def test_options_shared_memory_and_clusters() -> None:
    header = 'entry = "k"\ngrid = [1]\nblock = ["B", 2]\nargs = []\nshared_bytes = "B*sizeof(io)"\ncluster = [2, 1]\n'
    more = '[fixed]\nd = 64\n[options]\nfast_math = "B == 64"\nmax_registers = "min(255, registers // B // 4)"'
    template = template_of(header + more, "#define B 64 // tune: 64, 128\n")
    found = launch(template)
    assert (found.block, found.shared_bytes, found.cluster, found.threads) == ((64, 2, 1), 128, (2, 1, 1), 128)
    binding = Binding(template, attention())
    setting = Setting((("d", 64),), (("io", "bf16"),))
    assert binding.options({"B": 128}, setting, H100) == {"fast_math": False, "max_registers": 128}


# --- names -------------------------------------------------------------------------------------------------------------


def test_what_a_constraint_needs(scale_template: Template, scale_task: Task) -> None:
    binding = Binding(scale_template, scale_task)

    def kinds(text: str) -> set[Kind]:
        return set(binding.needs(Expression.parse(text)))

    assert kinds("per_block > 1") == {Kind.PARAMETER}
    assert kinds("d % VEC == 0") == {Kind.PARAMETER, Kind.STATIC}
    assert kinds("T * factor > sms") == {Kind.DYNAMIC, Kind.SCALAR, Kind.FACT}
    assert kinds("stride(x, 0) > 1") == {Kind.STATIC}
    assert kinds("aligned(x, 16)") == {Kind.DYNAMIC}


def test_inactive_parameters_take_their_default(scale_template: Template, scale_task: Task) -> None:
    binding = Binding(scale_template, scale_task)
    assert binding.fold({"VEC": 2, "HINT": 1}) == {"BLOCK": 128, "VEC": 2, "HINT": 0}
    assert binding.fold({"VEC": 4, "HINT": 1}) == {"BLOCK": 128, "VEC": 4, "HINT": 1}


def test_folding_follows_a_chain_of_whens() -> None:
    body = "#define C 0 // tune: 0, 1; when B == 1\n#define B 0 // tune: 0, 1; when A == on\n#define A off // tune: off, on\n"
    binding = Binding(launched('["q"]', body=body), attention())
    assert [p.name for p in binding.order] == ["A", "B", "C"]
    assert binding.fold({"A": "off", "B": 1, "C": 1}) == {"A": "off", "B": 0, "C": 0}
    assert binding.fold({"A": "on", "B": 1, "C": 1}) == {"A": "on", "B": 1, "C": 1}


def test_folding_another_configuration_forgets_the_lets_of_the_first() -> None:
    body = "#define A 1 // tune: 1, 2\n#define B 0 // tune: 0, 1; when twice == 4\n"
    binding = Binding(launched('["q"]', more='[let]\ntwice = "2*A"', body=body), attention())
    assert binding.fold({"A": 1, "B": 1}) == {"A": 1, "B": 0}
    assert binding.fold({"A": 2, "B": 1}) == {"A": 2, "B": 1}


def test_a_parameter_is_active_if_it_is_in_any_setting() -> None:
    body = "#define B 0 // tune: 0, 1; when d > 64\n"
    binding = Binding(launched('["q"]', body=body), attention())
    small, large = (Setting((("d", d),)) for d in (64, 128))
    assert [binding.fold({"B": 1}, settings)["B"] for settings in ([small], [large], [small, large])] == [0, 1, 1]


def test_true_and_false_are_truth_values() -> None:
    body = "constexpr bool F = true; // tune: true, false\n#define B 1 // tune: 1, 2; when F\n"
    binding = Binding(launched('["q"]', grid='["2 if F else 3"]', body=body), attention())
    assert binding.fold({"F": "false", "B": 2}) == {"F": "false", "B": 1}
    assert [launch(binding.template, F=f).grid[0] for f in ("true", "false")] == [2, 3]


def test_lets_in_any_order_over_dynamic_dims() -> None:
    more = '[let]\na = "b + 1"\nb = "c * T"\nc = "2"'
    assert launch(launched('["q"]', grid='["a"]', more=more)).grid == (201, 1, 1)


def test_a_template_s_own_name_comes_before_a_fact_of_the_device() -> None:
    body = "#define warp 8 // tune: 8, 16\n"
    assert launch(launched('["q"]', grid='["warp"]', body=body), warp=16).grid == (16, 1, 1)


def test_without_a_task_dims_are_what_was_given() -> None:
    template = launched('["q", "T"]', grid='["ceil_div(T*d, N)"]')
    binding = Binding(template, dims={"N": 3})
    assert (binding.kinds["N"], binding.kinds["d"], binding.kinds["T"]) == (Kind.STATIC, Kind.STATIC, Kind.DYNAMIC)
    with pytest.raises(TemplateError, match="if it is a dim, give --dim N=… or --task"):
        Binding(template)


# --- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "line", "rule"),
    [
        ("BLOCK*VEC", "BLOCK*VCE", 7, "[let] per_block: 'BLOCK*VCE' uses an undefined name: unknown name 'VCE'"),
        ("d % VEC == 0", "K % VEC == 0", 9, "unknown name 'K'"),
        ("VEC == 4;", "VCE == 4;", 15, "when of HINT: 'VCE == 4' uses an undefined name"),
        ("when VEC == 4", "when T == 4", 15, "'when' of HINT asks for a dynamic dim"),
        ("when VEC == 4", "when sms > 4", 15, "'when' of HINT asks for a fact of the device"),
        ("when VEC == 4", "when HINT == 0", 15, "the 'when' of HINT runs in a circle"),
        ('["BLOCK"]', '["threads"]', 4, "block: 'threads' uses an undefined name"),
        ('"T"]', '"M"]', 5, "args, 'M': 'M' uses an undefined name"),
        ('"T"]', '"stride(y, 0)"]', 5, "stride(y): unknown argument or type 'y'"),
        ('"T"]', '"sizeof(oi)"]', 5, "sizeof(oi): unknown argument or type 'oi'; known: factor, io, out, x"),
        ("// dim: d", "// dim: T", 12, "a dim line: the dim T is dynamic; only static dims are specialised"),
        ("// dim: d", "// dim: K", 12, "a dim line: unknown dim 'K'"),
        ("// type: io", "// type: acc", 11, "a type line: unknown type symbol 'acc'; known: io"),
        ("*/", "[fixed]\nT = 3\n*/", 11, "[fixed] unknown static dim 'T'"),
    ],
)
def test_mistakes_name_their_line_and_rule(scale_task: Task, old: str, new: str, line: int, rule: str) -> None:
    assert old in SCALE
    template = Template.parse(SCALE.replace(old, new, 1), name="scale", language="cuda")
    error = mistake(template, scale_task)
    assert rule in str(error)
    assert error.line == line


def test_lets_in_a_circle() -> None:
    error = mistake(launched('["q"]', more='[let]\nx = "1"\na = "b"\nb = "c + 1"\nc = "a"'))
    assert "[let] a runs in a circle" in str(error)
    assert error.line == 10


def test_a_let_of_itself_is_a_circle() -> None:
    assert "[let] a runs in a circle" in str(mistake(launched('["q"]', more='[let]\na = "a + 1"')))


def test_names_are_no_numbers() -> None:
    body = "#define MODE fast // tune: fast, exact\n"
    for more in ("MODE + 1 == 2", "fast > 0", "not MODE", "min(MODE, 1) == 1", "MODE < exact"):
        error = mistake(launched('["q"]', more=f'[require]\n"r" = "{more}"', body=body))
        assert "is a name, not a number; only == and != work on names" in str(error)
        assert error.line == 9
    assert Binding(launched('["q"]', more='[require]\n"r" = "MODE == fast or MODE != exact"', body=body), attention())


def test_a_static_dim_that_the_code_ignores_is_refused() -> None:
    header = 'entry = "k"\ngrid = ["T"]\nblock = [32]\nargs = [{}]'
    error = mistake(template_of(header.format('"q"')))
    assert "the static dim d is neither marked, fixed nor passed" in str(error)
    assert Binding(template_of(header.format('"q", "d"')), attention())
    assert Binding(template_of(header.format('"q", "n"') + '\n[let]\nn = "2*d"'), attention())


def test_one_name_cannot_mean_two_things() -> None:
    error = mistake(launched('["q"]', body="#define T 1 // tune: 1, 2\n"))
    assert "T is both a dynamic dim and a parameter" in str(error)
    error = mistake(launched('["q"]', body="#define MODE eps // tune: eps, exact\n"))
    assert "eps is both" in str(error)


def test_a_note_is_not_for_kernels() -> None:
    assert "uses an undefined name: unknown name 'total'" in str(mistake(launched('["q", "total"]')))


def test_a_type_that_the_code_ignores_is_refused() -> None:
    source = '/* tunesmith 1\nentry = "k"\ngrid = ["T"]\nblock = [32]\nargs = ["q", "out"]\n{more}*/\nvoid k();\n'
    bare = Template.parse(source.format(more="[fixed]\nd = 64\n"), name="t", language="cuda")
    with pytest.raises(TemplateError, match=r"the type io is neither marked nor fixed.*any of bf16, f32"):
        Binding(bare, attention())
    fixed = Template.parse(source.format(more='[fixed]\nd = 64\nio = "f32"\n'), name="t", language="cuda")
    Binding(fixed, attention())


def test_a_stride_does_not_tell_the_kernel_a_dim() -> None:
    source = '/* tunesmith 1\nentry = "k"\ngrid = ["T"]\nblock = [32]\nargs = ["q", "out", "{0}"]\n*/\n{1}void k();\n'
    typed = "using io_t = float; // type: io\n"
    with pytest.raises(TemplateError, match="the static dim d is neither marked, fixed nor passed"):
        Binding(Template.parse(source.format("stride(q, 0)", typed), name="t", language="cuda"), attention())
    Binding(Template.parse(source.format("d", typed), name="t", language="cuda"), attention())
