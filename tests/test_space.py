"""The space against brute force: every template small enough is enumerated by `itertools` and the scalar form."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tunesmith import solutions
from tunesmith.build import Kernel
from tunesmith.errors import TemplateError, UsageError
from tunesmith.expression import Expression, Undefined
from tunesmith.gates import fits
from tunesmith.launch import ResolvedLaunch
from tunesmith.limits import named
from tunesmith.settings import choose
from tunesmith.space import Space
from tunesmith.task import Input, Output, Setting, Task, Workload, dynamic, static
from tunesmith.template import Config, Parameter, Template

ANSWERS = Path(__file__).parent / "answers"


# --- templates in short form, and the oracle ---------------------------------------------------------------------------


def template(parameters: Mapping[str, str], requires: Sequence[str] = (), lets: Mapping[str, str] | None = None,
             header: str = "", block: str = '"32"', args: str = '"x"', dims: Mapping[str, int] | None = None,
             starts: Sequence[Mapping[str, int]] = ()) -> Template:  # fmt: skip
    """`parameters` maps a name to 'values; when condition'; the first value is the default."""
    lines = [f'entry = "f"\ngrid = ["1"]\nblock = [{block}]\nargs = [{args}]\n{header}']
    lines.append("[let]\n" + "\n".join(f'{key} = "{text}"' for key, text in (lets or {}).items()))
    lines.append("[require]\n" + "\n".join(f'"rule {i}" = "{text}"' for i, text in enumerate(requires)))
    lines += ["[[start]]\n" + "\n".join(f"{k} = {v}" for k, v in start.items()) for start in starts]
    code = [f"#define {name} {text.split(',')[0].split(';')[0]} // tune: {text}" for name, text in parameters.items()]
    code += [f"#define DIM_{name} {value} // dim: {name}" for name, value in (dims or {}).items()]
    code += ["using io_t = __nv_bfloat16; // type: io"] if dims else []
    return Template.parse("/* tunesmith 1\n" + "\n".join(lines) + "\n*/\n" + "\n".join(code), name="t", language="cuda")


def holds(space: Space, expression: Expression, config: Config) -> bool:
    for setting in space.settings:
        names = space.binding.names(config, setting)
        try:
            if not expression.truth(names, names):
                return False
        except Undefined:
            return False
    return True


def folded(space: Space, config: Config) -> dict[str, int | str]:
    found = dict(config)
    for parameter in space.binding.order:
        if parameter.when is None:
            continue
        active = False
        for setting in space.settings:
            names = space.binding.names(found, setting)
            try:
                active = active or parameter.when.truth(names, names)
            except Undefined:
                continue
        if not active:
            found[parameter.name] = parameter.default
    return found


def every(space: Space) -> list[dict[str, int | str]]:
    names = [p.name for p in space.parameters]
    return [dict(zip(names, row, strict=True)) for row in itertools.product(*(p.values for p in space.parameters))]


def frozen(configs: Sequence[Config]) -> set[tuple[tuple[str, int | str], ...]]:
    return {tuple(sorted(config.items())) for config in configs}


def legal(space: Space) -> set[tuple[tuple[str, int | str], ...]]:
    shape = space.rules.sorted.shape.values()
    canonical = (folded(space, config) for config in every(space))
    return frozen([c for c in canonical if all(holds(space, e, c) for e in shape)])


def agrees(space: Space) -> None:
    wanted = legal(space)
    count = space.count()
    assert (count.value, count.exact) == (len(wanted), True)
    assert len(space) == len(wanted)
    listed = [space.config(row) for row in space.matrix]
    assert frozen(listed) == wanted
    assert [space[i] for i in range(len(space))] == listed
    for reason, expression in space.rules.sorted.shape.items():
        removed = space.removed_by()[reason]
        assert removed.exact
        assert removed.value == sum(not holds(space, expression, config) for config in every(space))
    for config in every(space)[:60]:
        assert space.fold(config) == folded(space, config)
        assert space.is_legal(config) == (tuple(sorted(folded(space, config).items())) in wanted)
    rows = np.array(list(itertools.product(*(range(len(p.values)) for p in space.parameters))), np.uint16)
    assert space.legal(rows).tolist() == [
        tuple(sorted(folded(space, config).items())) in wanted for config in every(space)
    ]


# --- random templates --------------------------------------------------------------------------------------------------

PARAMETERS = ("A", "B", "C", "D", "E")


@st.composite
def texts(draw: st.DrawFn, names: tuple[str, ...], depth: int = 2) -> str:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(st.sampled_from(names), st.integers(0, 9).map(str)))
    left, right = draw(texts(names, depth - 1)), draw(texts(names, depth - 1))
    forms = [f"({left} {op} {right})" for op in ("+", "-", "*", "/", "//", "%", "<", "==", "and", "or")]
    other = draw(st.sampled_from(names))
    forms += [f"min({left}, {right})", f"({left} if {other} > 1 else {right})", f"ceil_div({left}, {right})"]
    return draw(st.sampled_from(forms))


@st.composite
def conditions(draw: st.DrawFn, names: tuple[str, ...]) -> str:
    left, right = draw(texts(names)), draw(texts(names))
    plain = f"{left} {draw(st.sampled_from(['<', '<=', '==', '!=', '>']))} {right}"
    further = draw(texts(names, 1))
    return draw(st.sampled_from([plain, plain, f"{plain} < {further}", f"{plain} and {further} > 1",
                                 f"{plain} or M == red", f"not ({plain})", f"{left} % 3 == {right}"]))  # fmt: skip


@st.composite
def templates(draw: st.DrawFn) -> Template:
    values = st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True)
    given_values = {name: ", ".join(map(str, draw(values))) for name in PARAMETERS}
    given_values["M"] = "red, green"
    lets = {"u": draw(texts(PARAMETERS)), "v": draw(texts((*PARAMETERS, "u", "d")))}
    names = (*PARAMETERS, "u", "v", "d")
    for name in PARAMETERS:
        if draw(st.integers(0, 2)) == 0:
            given_values[name] += f"; when {draw(conditions(names))}"
    requires = draw(st.lists(conditions(names), max_size=4))
    return template(given_values, requires, lets, args='"x", "d"', header="")


@given(templates(), st.sampled_from([(4,), (6, 9)]))
@settings(max_examples=100, deadline=None)
def test_random_templates(random: Template, sizes: tuple[int, ...]) -> None:
    try:
        space = Space(random, settings=[Setting((("d", size),)) for size in sizes])
    except TemplateError as error:
        assume("circle" not in error.message)
        raise
    agrees(space)


@given(templates(), st.sampled_from([8, 32]))
@settings(max_examples=60, deadline=None)
def test_rules_put_aside_change_nothing(random: Template, budget: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solutions, "BUDGETS", (budget,))
        try:
            agrees(Space(random, d=4))
        except TemplateError as error:
            assume("circle" not in error.message)
            raise


# --- templates that models wrote ---------------------------------------------------------------------------------------

WRITTEN = {  # file: fixed dims, combinations, legal (what a loop over all of them counted)
    "silu_and_mul/template_2.cu": ({"d": 14336}, 19_353_600, 206_436),
    "topk_softmax/expose_1.cu": ({"E": 256, "k": 8}, 995_328_000, 242_196_480),
    "gemm_bf16/expose_1.cu": ({"N": 4096, "K": 4096}, 199_065_600, 40_402_944),
    "gemm_bf16/template_1.cu": ({"N": 4096, "K": 4096}, 77_760, 38_520),
    "row_softmax/template_1.cl": ({"V": 4096}, 103_680, 86_400),
    "matmul/template_1.cl": ({"N": 768, "K": 768}, 497_664, 217_728),
}


@pytest.mark.parametrize("file", WRITTEN)
def test_templates_that_models_wrote(file: str) -> None:
    fixed, combinations, wanted = WRITTEN[file]
    space = Space(Template.load(ANSWERS / file, fixed=fixed))
    assert space.cartesian == combinations
    assert (space.count().value, space.count().exact) == (wanted, True)
    assert all(removed.exact for removed in space.removed_by().values())
    drawn = space.sample(50, np.random.default_rng(1))
    assert len(frozen(drawn)) == 50
    assert all(space.is_legal(config) for config in drawn)
    for start in space.starts():
        assert space.is_legal(start)
        assert space.neighbours(start)
    assert space.template.default in space.starts()


def test_a_written_template_against_random_rows() -> None:
    """The share of legal configurations among random ones is what the count says."""
    space = Space(Template.load(ANSWERS / "silu_and_mul/template_2.cu", fixed={"d": 14336}))
    rng = np.random.default_rng(3)
    rows = np.stack([rng.integers(0, len(p.values), 4000) for p in space.parameters], axis=1).astype(np.uint16)
    by_columns = space.legal(rows)
    assert by_columns.tolist() == [space.is_legal(space.config(row)) for row in rows]
    removed = space.removed_by()
    for reason, expression in space.rules.sorted.shape.items():
        share = np.mean([not holds(space, expression, space.config(row)) for row in rows[:1000]])
        assert share == pytest.approx(removed[reason].value / space.cartesian, abs=0.06)


def test_another_dim_than_the_fixed_one_makes_everything_illegal() -> None:
    space = Space(Template.load(ANSWERS / "silu_and_mul/template_2.cu", fixed={"d": 14336}), d=4096)
    assert len(space) == 0
    assert space.sample(3, np.random.default_rng(0)) == []
    assert "d = 14336" in (space.why_illegal({}) or "")
    assert next(iter(space.removed_by().values())).value == space.cartesian


# --- large ones with known counts --------------------------------------------------------------------------------------


def numbered(count: int, values: int) -> dict[str, str]:
    return {f"P{i}": ", ".join(map(str, range(values))) for i in range(count)}


@pytest.mark.parametrize(
    ("parameters", "requires", "wanted"),
    [
        (numbered(7, 10), [], 10**7),
        (numbered(30, 10), [], 10**30),
        (numbered(9, 10), ["P0+P1+P2+P3+P4+P5+P6+P7+P8 == 3"], math.comb(11, 3)),
        (numbered(9, 10), ["P8+P1+P2+P5+P4+P3+P6+P7+P0 <= 2"], math.comb(11, 2)),
        (numbered(12, 10), [f"P{i} < P{i + 1}" for i in range(11)], 0),
        (numbered(9, 10), [f"P{i} < P{i + 1}" for i in range(8)], 10),
        (numbered(10, 10), [f"P{i} <= P{i + 1}" for i in range(9)], math.comb(19, 9)),
        (numbered(9, 10), ["P0 < P1 < P2 < P3 < P4 < P5 < P6 < P7 < P8"], 10),
        (numbered(6, 20), ["P0*P1*P2*P3*P4*P5 == 1"], 1),
        (numbered(20, 8), [f"P{2 * i} == P{2 * i + 1}" for i in range(10)], 8**10),
        (numbered(8, 8), [f"P{i} != P{j}" for i in range(8) for j in range(i)], math.factorial(8)),
    ],
)
def test_known_counts(parameters: dict[str, str], requires: list[str], wanted: int) -> None:
    space = Space(template(parameters, requires))
    assert (space.count().value, space.count().exact) == (wanted, True)
    drawn = space.sample(20, np.random.default_rng(0))
    assert len(frozen(drawn)) == min(20, wanted)
    assert all(space.is_legal(config) for config in drawn)
    if wanted:
        assert space.is_legal(space[wanted - 1] if wanted < 2**60 else drawn[0])


def test_switches_fold_large_spaces() -> None:
    parameters = {"S": "0, 1, 2"} | {f"P{i}": f"{', '.join(map(str, range(20)))}; when S == {i % 3}" for i in range(9)}
    space = Space(template(parameters))
    assert space.cartesian == 3 * 20**9
    assert space.count().value == 3 * 20**3


def test_a_tower_of_lets_costs_its_length() -> None:
    lets = {"l0": "A + 1"} | {f"l{i}": f"(l{i - 1} + l{i - 1}) // 2" for i in range(1, 90)}
    space = Space(template({"A": "1, 2, 3", "B": "1, 2"}, ["l89 == A + B"], lets))
    assert space.count().value == 3


def hashed(count: int, values: int) -> Template:
    """Constraints that no sum or order helps with: every prefix is a state of its own."""
    mixed = " + ".join(f"(P{i}*{7919 + 104729 * i} % 1009)*(P{(i + 3) % count} + {i})" for i in range(count))
    return template(numbered(count, values), [f"({mixed}) % 97 == 5"])


def test_what_is_too_tangled_to_count_is_estimated_and_sampled() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solutions, "BUDGETS", (2**10,))
        patch.setattr(solutions, "LISTED", 2**10)
        space = Space(hashed(8, 6))
        count = space.count()
        assert not count.exact
        assert count.low <= count.value <= count.high
        drawn = space.sample(100, np.random.default_rng(0))
        assert len(frozen(drawn)) == 100
        assert all(space.is_legal(config) for config in drawn)
        assert not next(iter(space.removed_by().values())).exact
        with pytest.raises(UsageError, match="draw samples"):
            len(space)
    exact = Space(hashed(8, 6)).count()
    assert exact.exact
    assert count.low <= exact.value <= count.high


def test_samples_are_uniform_over_folded_configurations() -> None:
    space = Space(template({"S": "0, 1", "A": "0, 1, 2, 3; when S == 1", "B": "0, 1, 2"}, ["A + B != 3"]))
    total = len(space)
    rng = np.random.default_rng(7)
    seen = Counter(space.key(config) for _ in range(4000) for config in space.sample(1, rng))
    assert len(seen) == total
    assert max(seen.values()) < 1.35 * 4000 / total
    assert min(seen.values()) > 0.65 * 4000 / total
    assert len(frozen(space.sample(10**6, rng))) == total


def test_rejection_is_uniform_too() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solutions, "BUDGETS", (4,))
        patch.setattr(solutions, "LISTED", 0)
        space = Space(template({"S": "0, 1", "A": "0, 1, 2, 3; when S == 1", "B": "0, 1, 2"}, ["A + B != 3"]))
        assert not space.enumerated
        rng = np.random.default_rng(7)
        seen = Counter(space.key(config) for _ in range(1500) for config in space.sample(1, rng))
    total = len(Space(space.template))
    assert len(seen) == total
    assert max(seen.values()) < 1.5 * 1500 / total


# --- a task, its settings, and what stands apart -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(
        "t",
        dims={"T": dynamic, "d": static},
        types={"io": ["bf16", "f32"]},
        arguments=[Input("x", "io[T, d]"), Output("out", "io[T, d]")],
        workloads=[
            Workload("a", T=16, d=64, io="bf16"),
            Workload("b", T=99, d=64, io="bf16"),
            Workload("c", T=16, d=96, io="f32"),
        ],
    )


def bound(requires: Sequence[str], **more: object) -> Template:
    parameters = {"B": "32, 64, 128, 2048", "V": "1, 2, 4, 8, 16, 32", "S": "0, 1", "R": "1, 2; when d == 96"}
    return template(parameters, requires, args='"x", "out", "T"', dims={"d": 64}, **more)  # type: ignore[arg-type]


def test_several_settings(task: Task) -> None:
    space = Space(bound(["d % V == 0", "V*sizeof(io) <= 32"]), task)
    assert len(space.settings) == 2
    agrees(space)
    one = Space(bound(["d % V == 0", "V*sizeof(io) <= 32"]), task, d=64)
    assert [str(s) for s in one.settings] == ["d=64 io=bf16"]
    agrees(one)
    assert len(space) == 4 * 4 * 2 * 2  # V <= 8 for f32; R is active in one setting
    assert len(one) == 4 * 5 * 2
    assert "d=96 io=f32" in (space.why_illegal({"V": 16}) or "")


def test_constraints_sort_themselves(task: Task) -> None:
    requires = [
        "d % V == 0",
        "T % V == 0",
        "aligned(x, V)",
        "B <= max_threads",
        "B*T <= max_threads",
        "stride(x, 0) >= V",
    ]
    space = Space(bound(requires), task, d=64, limits="sm_90")
    assert list(space.rules.sorted.shape) == ["rule 0", "rule 5"]
    assert list(space.predicates) == ["rule 1", "rule 2", "rule 4"]
    assert list(space.device_constraints) == ["rule 3"]
    assert len(space) == 4 * 6 * 2
    assert space.over_limits().value == len(space) // 4
    assert set(space.removed_by()) == {"rule 0", "rule 5"}


def test_over_limits(task: Task) -> None:
    header = 'shared_bytes = "B*V*8"\ncluster = ["V"]'
    space = Space(bound(["d % V == 0"], block='"B", "1 + T % 2"', header=header), task, d=64)
    limits = named("sm_90")

    def over(config: Config) -> bool:
        b, v = int(config["B"]), int(config["V"])
        return b > 1024 or b * v * 8 > limits.max_shared_bytes or v > 2 * limits.max_cluster

    assert space.over_limits("sm_90").value == sum(over(config) for config in space)
    assert space.over_limits(limits).exact
    assert space.over_limits("sm_70").value > space.over_limits("sm_90").value
    with pytest.raises(UsageError, match="no limits"):
        space.over_limits()


def test_clusters_have_one_limit_before_and_after_a_build() -> None:
    for arch in ("sm_80", "sm_90"):
        limits = named(arch)
        space = Space(template({"C": "1, 2, 8, 16, 32"}, header='cluster = ["C"]', args=""), limits=limits)
        late = [fits(ResolvedLaunch("f", (32, 1, 1), (32, 1, 1), (), cluster=(int(c["C"]), 1, 1)), Kernel("f", "f"), limits)
                for c in space]  # fmt: skip
        assert space.over_limits().value == len([reason for reason in late if reason]) == (4 if arch == "sm_80" else 1)


def test_a_launch_that_does_not_happen_exceeds_nothing() -> None:
    source = """/* tunesmith 1
[[launch]]
entry = "f"
grid = ["1"]
block = ["B"]
args = []
when = "S == 1"
*/
#define B 32 // tune: 32, 2048
#define S 0 // tune: 0, 1
"""
    space = Space(Template.parse(source, name="t", language="cuda"))
    assert space.over_limits("sm_90").value == 1


def test_settings_by_name(task: Task) -> None:
    with pytest.raises(UsageError, match="T is a dynamic dim"):
        Space(bound([]), task, T=16)
    with pytest.raises(UsageError, match="unknown static dim 'q'"):
        Space(bound([]), task, q=16)
    assert [str(s) for s in Space(bound([]), task, d=32, io="fp32").settings] == ["d=32 io=f32"]
    assert [str(s) for s in Space(bound([])).settings] == ["d=64 io=bf16"]
    assert [str(s) for s in Space(bound([]), d=8).settings] == ["d=8 io=bf16"]
    with pytest.raises(UsageError, match="unknown dim"):
        Space(bound([]), nonsense=8)
    with pytest.raises(UsageError, match="unknown architecture"):
        Space(bound([]), limits="sm_1")


# --- one configuration -------------------------------------------------------------------------------------------------


def test_why_illegal_names_reason_text_and_numbers() -> None:
    space = Space(template({"A": "1, 2, 3", "B": "0, 1, 2"}, ["u <= 4", "8 % B == 0"], {"u": "A*B"}))
    assert space.why_illegal({"A": 1, "B": 1}) is None
    assert space.why_illegal({"A": 3, "B": 2}) == "rule 0: u <= 4 does not hold (A = 3, B = 2, u = 6)"
    assert space.why_illegal({"B": 0}) == "rule 1: 8 % B == 0 has no value: division by zero (%) (B = 0)"
    assert "A = 7 is not among 1, 2, 3" in (space.why_illegal({"A": 7}) or "")
    assert "unknown parameter 'X'" in (space.why_illegal({"X": 7}) or "")


def test_inactive_parameters_fold() -> None:
    space = Space(template({"S": "0, 1", "A": "1, 2, 3; when S == 1", "B": "0, 1; when A == 3"}, ["A != 2"]))
    assert space.fold({"S": 0, "A": 3, "B": 1}) == {"S": 0, "A": 1, "B": 0}
    assert space.key({"S": 0, "A": 2}) == space.key({"S": 0, "A": 3}) == (0, 0, 0)
    assert space.is_legal({"S": 0, "A": 2})
    assert not space.is_legal({"S": 1, "A": 2})
    agrees(space)


def test_neighbours() -> None:
    space = Space(template({"S": "0, 1", "A": "1, 2, 3, 4; when S == 1", "B": "0, 1"}, ["A != 3"]))
    here = {"S": 1, "A": 2, "B": 0}
    assert frozen(space.neighbours(here)) == frozen(
        [{"S": 0, "A": 1, "B": 0}, here | {"A": 1}, here | {"A": 4}, here | {"B": 1}]
    )
    assert here | {"A": 4} not in space.neighbours(here, adjacent=True)
    assert frozen(space.neighbours({"S": 0})) == frozen([{"S": 1, "A": 1, "B": 0}, {"S": 0, "A": 1, "B": 1}])


def test_starts_are_legal_or_brought_there() -> None:
    space = Space(template({"A": "1, 2, 3", "B": "1, 2, 3"}, ["A*B == 6"], starts=[{"A": 2, "B": 3}, {"A": 3, "B": 2}]))
    assert space.starts() == [{"A": 2, "B": 3}, {"A": 3, "B": 2}]
    near = Space(template({"A": "1, 2, 3", "B": "1, 2, 3"}, ["A == 3", "B == 3"]))
    assert near.starts() == [{"A": 3, "B": 3}]


def test_names_and_truths_as_values() -> None:
    parameters = {"MODE": "red, green, blue", "F": "false, true", "A": "1, 2; when MODE == red"}
    space = Space(template(parameters, ["F or MODE != blue", "not F or A < 2"]))
    agrees(space)
    assert space.count().value == 5 + 1


def test_a_template_without_parameters_is_one_configuration() -> None:
    space = Space(template({}))
    assert (space.cartesian, len(space), space[0], space.starts()) == (1, 1, {}, [{}])
    assert space.matrix.shape == (1, 0)
    assert space.neighbours({}) == []


def test_rows_and_configurations() -> None:
    space = Space(template({"A": "1, 2, 4", "B": "0, 1"}, ["A != 2"]))
    for config in space:
        assert space.config(space.row(config)) == config
    assert space.matrix.dtype == np.uint16
    with pytest.raises(IndexError):
        space[len(space)]
    with pytest.raises(UsageError, match="too many to hold"):
        _ = Space(template(numbered(9, 10))).matrix


def test_a_value_named_like_a_fact_is_the_value() -> None:
    space = Space(template({"HOW": "warp, block"}, ["HOW == warp"]), limits="sm_90")
    assert len(space) == 1
    assert space.over_limits().value == 0


# --- recorded spaces ---------------------------------------------------------------------------------------------------


def recorded(**values: tuple[int | str, ...]) -> list[Parameter]:
    return [Parameter(name, listed, listed[0], None, "", 0) for name, listed in values.items()]


def test_a_recorded_space() -> None:
    rows = [{"A": 1, "B": 0}, {"A": 2, "B": 0}, {"A": 2, "B": 1}]
    space = Space.of(recorded(A=(1, 2), B=(0, 1)), rows=rows)
    assert (space.cartesian, len(space)) == (4, 3)
    assert list(space) == rows
    assert space.is_legal({"A": 2, "B": 1})
    assert space.why_illegal({"A": 1, "B": 1}) == "not among the recorded configurations"
    assert frozen(space.sample(9, np.random.default_rng(0))) == frozen(rows)
    assert space.neighbours({"A": 1, "B": 0}) == [{"A": 2, "B": 0}]


def test_a_space_of_values_and_constraints() -> None:
    space = Space.of(recorded(A=(1, 2, 3), B=(2, 4)), requires=["B % A == 0"])
    agrees(space)
    assert space.why_illegal({"A": 3}) == "B % A == 0 does not hold (A = 3, B = 2)"


def test_only_workloads_that_the_language_serves_count() -> None:
    def choices(language: str, *workloads: Workload) -> list[str]:
        arguments = [Input("x", "io[d]"), Output("out", "io[d]")]
        task = Task("t", dims={"d": static}, types={"io": ["f32", "bf16"]}, arguments=arguments, workloads=workloads)
        return [str(s) for s in choose(replace(template({"A": "1, 2"}), language=language), task, {})]

    gpu, cpu = Workload("g", d=1, io="bf16", on="gpu"), Workload("c", d=2, io="f32", on="cpu")
    either, opencl = Workload("e", d=3, io="f32"), Workload("o", d=4, io="f32", on="gpu")
    assert choices("cuda", gpu, cpu, either, opencl) == ["d=1 io=bf16", "d=3 io=f32", "d=4 io=f32"]
    assert choices("opencl", gpu, cpu, either, opencl) == ["d=2 io=f32", "d=3 io=f32", "d=4 io=f32"]
    for language, only in (("cuda", cpu), ("opencl", gpu)):
        with pytest.raises(UsageError, match=f"no workload of t is for {language}"):
            choices(language, only)
