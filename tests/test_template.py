"""A configuration is the file with other values on its marked lines, and every mistake is named with its line."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import templates_among_answers
from tunesmith.errors import TemplateError
from tunesmith.template import Template

HEADER = """/* tunesmith 1
entry = "k"
grid = [1]
block = ["N"]
args = []
*/
"""  # the body begins on line 7


def parse(body: str, header: str = HEADER) -> Template:
    return Template.parse(header + body, name="t", language="cuda")


def mistake(body: str, header: str = HEADER) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        parse(body, header)
    assert str(caught.value).startswith(f"t:{caught.value.line}: ")
    return caught.value


# --- what a marked line may look like ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "#define N 32 // tune: 16, 32",
        "  #  define N 32 /* tune: 16, 32 */",
        "#define N (32)  // tune: 16, 32; a note",
        "constexpr int N = 32; // tune: 16, 32",
        "static constexpr unsigned N = 0x20; // tune: 16, 32",
        "const std::size_t N = 32; /* tune: 16, 32 */;",
        "inline constexpr uint32_t N = 32;// tune:16,32;note: with // and ; in it",
    ],
)
def test_forms_of_a_parameter(line: str) -> None:
    template = parse(line + "\n")
    (parameter,) = template.parameters
    assert (parameter.name, parameter.values, parameter.default) == ("N", (16, 32), 32)
    assert template.render() == template.source
    code, mark = re.split(r"(?=//|/\*)", line, maxsplit=1)
    assert template.render({"N": 16}) == HEADER + re.sub(r"\b(0x20|32)\b", "16", code) + mark + "\n"


def test_values_may_be_names_and_negative() -> None:
    template = parse("#define N -1 // tune: -1, 0, 1\nconstexpr auto MODE = fast; // tune: exact, fast; when N == 1\n")
    assert template.default == {"N": -1, "MODE": "fast"}
    assert template.parameter("MODE").when is not None
    assert "N 1 //" in template.render({"N": 1})
    assert "MODE = exact;" in template.render({"MODE": "exact"})


@pytest.mark.parametrize(
    "line",
    [
        "int head; // dim: head dimension",
        "int mode; // type: 0 for a sum",
        "// a comment that says // tunes well",
        "x = tuned(y); // tuned for speed",
    ],
)
def test_a_comment_that_only_looks_like_a_mark_is_passed_by(line: str) -> None:
    template = parse("#define N 1 // tune: 1\n" + line + "\n")
    assert template.names == {"N"}
    assert not template.dim_lines
    assert not template.type_lines


def test_a_header_may_follow_a_licence_and_a_byte_order_mark() -> None:
    licensed = "\ufeff// SPDX-License-Identifier: MIT\n/* more\n words */\n" + HEADER
    assert parse("#define N 1 // tune: 1, 2\n", licensed).parameter("N").line == 10


def test_types_and_dims_are_rendered_in_the_words_of_the_language() -> None:
    types = "using io_t = float; // type: io\ntypedef unsigned int id_t; // type: id\n"
    body = f"#define N 1 // tune: 1\n{types}#define D 64 // dim: d\n"
    template = parse(body)
    rendered = template.render(dims={"d": 128}, types={"io": "bf16", "id": "i64"})
    assert "using io_t = __nv_bfloat16; //" in rendered
    assert "typedef long long id_t; //" in rendered
    assert "#define D 128 //" in rendered
    assert template.render(dims={"d": 64}, types={"io": "fp32", "id": "u32"}) == template.source


def test_another_spelling_of_the_same_type_stays() -> None:
    template = parse("#define N 1 // tune: 1\nusing io_t = nv_bfloat16; // type: io\n")
    assert template.render(types={"io": "bf16"}) == template.source


def test_a_type_that_the_language_lacks_is_refused_on_its_line() -> None:
    source = HEADER + "#define N 1 // tune: 1\n#define io_t float // type: io\n"
    template = Template.parse(source, name="t", language="opencl")
    with pytest.raises(TemplateError, match="t:8: opencl has no type for bf16"):
        template.render(types={"io": "bf16"})


# --- the property: marked lines only, and the file itself at its defaults ----------------------------------------------


def assert_marked_lines_only(template: Template, config: dict[str, int | str]) -> None:
    assert template.render(template.default) == template.source
    rendered = template.render(config)
    before, after = template.source.split("\n"), rendered.split("\n")
    assert len(before) == len(after)
    marked = {p.line for p in template.parameters if config.get(p.name, p.default) != p.default}
    assert {i for i, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b} == marked
    again = Template.parse(rendered, name=template.name, language=template.language)
    assert again.default == template.complete(config)
    assert [p.values for p in again.parameters] == [p.values for p in template.parameters]


FORMS = ("#define {} {} // tune: {}", "constexpr int {} = {}; // tune: {}; note", "  #define {} ({}) /* tune: {} */")
FILLERS = ("", "// 1, 2, 3", "\tint x = 16; // the 16", "#define OTHER 16", "/* tuning */", 'char* s = "é";', "\f")


@st.composite
def random_templates(draw: st.DrawFn) -> tuple[Template, dict[str, int | str]]:
    lines, config = [], {}
    for index in range(draw(st.integers(0, 5))):
        lines += draw(st.lists(st.sampled_from(FILLERS), max_size=3))
        numbers = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=4, unique=True)
        words = st.lists(st.from_regex(r"[A-Z][A-Za-z0-9_]{0,6}", fullmatch=True), min_size=1, max_size=4, unique=True)
        values = draw(st.one_of(numbers, words))
        default, config[f"P{index}"] = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        spelled = hex(default) if isinstance(default, int) and draw(st.booleans()) else str(default)
        lines.append(draw(st.sampled_from(FORMS)).format(f"P{index}", spelled, ", ".join(map(str, values))))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    source = (HEADER.replace("N", "1") + "\n".join(lines)).replace("\n", end) + draw(st.sampled_from(["", end]))
    return Template.parse(source, name="random", language="cuda"), config


@given(random_templates())
def test_random_templates_render_on_marked_lines_only(made: tuple[Template, dict[str, int | str]]) -> None:
    assert_marked_lines_only(*made)


@pytest.mark.parametrize("file", templates_among_answers(), ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_answers_of_models_render_on_marked_lines_only(file: Path) -> None:
    template = Template.load(file)
    rng = random.Random(0)
    assert bool(template.parameters) is file.stem.startswith(("template", "expose"))
    for _ in range(20):
        assert_marked_lines_only(template, {p.name: rng.choice(p.values) for p in template.parameters})
    for start in template.starts:
        assert_marked_lines_only(template, dict(start))


# --- configurations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ({"M": 16}, "unknown parameter 'M'"),
        ({"N": 8}, "N = 8 is not among 16, 32"),
        ({"N": 16.0}, "N = 16.0 is not among"),
        ({"N": True}, "N = True is not among"),
        ({"N": "8; evil()"}, "is not among"),
    ],
)
def test_a_configuration_of_unlisted_names_or_values_is_refused(config: dict[str, int], rule: str) -> None:
    template = parse("#define N 32 // tune: 16, 32\n")
    with pytest.raises(TemplateError, match=rule.replace("(", r"\(").replace(")", r"\)")):
        template.render(config)


def test_load_adds_fixed_dims_and_never_contradicts_the_header(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(HEADER.replace("*/", "[fixed]\nd = 64\n*/") + "#define N 1 // tune: 1\n")
    assert Template.load(file, fixed={"V": 5, "d": 64}).fixed == {"d": 64, "V": 5}
    with pytest.raises(TemplateError, match=r"k\.cu: fixed at d = 64 in its header, not 128"):
        Template.load(file, fixed={"d": 128})


def test_load_says_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=r"unknown language '\.py'; known: \.cl, \.cu"):
        Template.load(tmp_path / "k.py")
    with pytest.raises(TemplateError, match="cannot be read"):
        Template.load(tmp_path / "missing.cu")
    (tmp_path / "latin.cu").write_bytes(HEADER.encode() + b"// \xe9\n")
    with pytest.raises(TemplateError, match="cannot be read"):
        Template.load(tmp_path / "latin.cu")


# --- mistakes: the line and the rule -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("#define N 8 // tune: 16, 32", "the default of N, 8, is not among its values 16, 32"),
        ("#define N 010 // tune: 8, 10", "the default of N, 010, is not among"),
        ("#define N 8 // tune: 8, 010", "N lists '010'"),
        ("#define N 8 // tune: 8, 16, 8", "N lists the value 8 twice"),
        ("#define N 16 // tune: 16, 0x10", "N lists the value 16 twice"),
        ("#define N 8 // tune: 8, fast", "N mixes names and numbers"),
        ("#define N 8 // tune: 8,", "N lists ''"),
        ("#define N 8 // tune: 8, 1.5", "N lists '1.5'"),
        ("#define N 8 // tune:", "N lists ''"),
        ("#define N 8 // tune: 8, 16 when X", "end the values with ';' before 'when'"),
        ("#define N 8 // tune: 8; a note; when X == 1", "a note that begins with 'when'"),
        ("#define N 8 // tune: 8; when X ==", "unexpected the end"),
        ("#define N 8 // tune: 8; when X && Y", "write 'and'"),
        ("#define N 8 // Tune: 8, 16", "does not mark a parameter; write '// tune: values'"),
        ("#define N 8 // tune 8, 16", "does not mark a parameter"),
        ("int x[8]; // tune: 8, 16", "a line marked 'tune:' must read"),
        ("#define N 4 * 2 // tune: 8", "a line marked 'tune:' must read"),
        ("int a = 8, b = 8; // tune: 8", "a line marked 'tune:' must read"),
        ("float d = 1.5f; // dim: d", "a line marked 'dim:' must read"),
        ("struct io_t {}; // type: io", "a line marked 'type:' must read"),
    ],
)
def test_mistakes_on_a_marked_line(line: str, rule: str) -> None:
    error = mistake("// first\n" + line + "\n")
    assert error.line == 8
    assert rule in str(error)


def test_a_second_parameter_of_the_same_name_names_the_first() -> None:
    error = mistake("#define N 1 // tune: 1, 2\n\n#define N 1 // tune: 1, 2\n")
    assert error.line == 9
    assert "a second parameter N; the first is on line 7" in str(error)


def test_a_name_cannot_be_a_parameter_and_a_dim() -> None:
    error = mistake("#define d 1 // tune: 1, 2\n#define D 64 // dim: d\n")
    assert error.line == 8
    assert "d is a parameter and a dim" in str(error)


def test_a_let_cannot_be_a_parameter_too() -> None:
    header = HEADER.replace("*/", '[let]\nN = "2"\n*/')
    error = mistake("#define N 1 // tune: 1, 2\n", header)
    assert error.line == 7
    assert "[let] N is also a parameter" in str(error)


def test_a_dim_is_marked_or_fixed_not_both() -> None:
    error = mistake("#define D 64 // dim: d\n", HEADER.replace("*/", "[fixed]\nd = 64\n*/"))
    assert error.line == 9
    assert "the dim d is marked and in [fixed]" in str(error)


@pytest.mark.parametrize(
    ("added", "rule"),
    [
        (["[let]", 'other = "1"', 'a = "b +"'], "unexpected the end"),
        (["[let]", 'half = "per // 2"', 'per = "B *"'], "unexpected the end"),
        (["[require]", '"first" = "1"', '"a reason" = "T ** 2"'], "there are no powers"),
        (["[options]", 'fma = "1"', 'fast_math = "a = 1"'], "write '=='"),
    ],
)
def test_an_expression_of_the_header_that_cannot_be_read(added: list[str], rule: str) -> None:
    error = mistake("#define N 1 // tune: 1, 2\n", HEADER.replace("*/", "\n".join([*added, "*/"])))
    assert error.line == 8
    assert rule in str(error)


@pytest.mark.parametrize(
    ("start", "rule"),
    [("N = 3", "N = 3 is not among 1, 2"), ("M = 1", "unknown parameter 'M'"), ("N = 1.0", "N = 1.0 is not among")],
)
def test_a_start_must_be_a_configuration(start: str, rule: str) -> None:
    header = HEADER.replace("*/", f"[[start]]\nN = 2\n[[start]]\n{start}\n*/")
    error = mistake("#define N 1 // tune: 1, 2\n", header)
    assert error.line == 8  # the second [[start]]
    assert rule in str(error)
