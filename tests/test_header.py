"""The header's keys and forms; a mistake in it stands on the line where a reader would look."""

from __future__ import annotations

import pytest

from tunesmith.errors import TemplateError
from tunesmith.header import Header, read_header

LINES = ['entry = "k"', 'grid = ["T"]', "block = [32]", 'args = ["x", "T"]']  # lines 2 to 5


def read(*more: str, lines: list[str] = LINES) -> Header:
    return read_header("\n".join(["/* tunesmith 1", *lines, *more, "*/", ""]), "k.cu")


def mistake(source: str) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        read_header(source, "k.cu")
    return caught.value


def mistake_in(*more: str, lines: list[str] = LINES) -> TemplateError:
    return mistake("\n".join(["/* tunesmith 1", *lines, *more, "*/", ""]))


def test_launches_of_a_full_header() -> None:
    (launch,) = read("shared_bytes = 1024", 'cluster = ["2"]', "cooperative = true", 'when = "T > 1"').launches
    assert launch.entry == "k"
    assert [a.text for a in launch.args] == ["x", "T"]
    assert launch.shared_bytes is not None
    assert launch.shared_bytes.integer({}) == 1024
    assert launch.cooperative
    assert not launch.programmatic
    assert launch.when is not None


def test_casts_of_arguments() -> None:
    lines = [*LINES[:3], 'args = ["i64(T*d)", "local(4*B)", " f32( 1 ) ", "stride(x, 0)"]']
    (launch,) = read(lines=lines).launches
    assert [(a.cast, a.expression.text.strip()) for a in launch.args] == [
        ("i64", "T*d"),
        ("local", "4*B"),
        ("f32", "1"),
        (None, "stride(x, 0)"),
    ]


def test_several_launches_and_workspaces() -> None:
    tables = ["[[launch]]", *LINES, "[[launch]]", *LINES, 'when = "T > 1"']
    header = read(*tables, "[workspace]", 'a = "f32[T, 4]"', 'b = {array = "i32[1]", zeroed = true}', lines=[])
    assert len(header.launches) == 2
    assert [(w.name, w.zeroed, w.array.type) for w in header.workspaces] == [("a", False, "f32"), ("b", True, "i32")]


@pytest.mark.parametrize("entry", ["k", "ns::k", "k<float, 256>", "act<io_t, (BLOCK > 1)>", "k<const float*, -1>"])
def test_entries_are_names_or_instantiations(entry: str) -> None:
    assert read(lines=[f'entry = "{entry}"', *LINES[1:]]).launches[0].entry == entry


@pytest.mark.parametrize(
    "entry", ["", "k;", "k\\n#include <x>", "k)\\u000a\\u0023include \\u0022/etc/passwd\\u0022", 'k<\\"a\\">', "(k)"]
)
def test_an_entry_that_is_more_than_a_name_is_refused(entry: str) -> None:
    """NVRTC compiles an entry's text: an include in it would be read past the source gate."""
    error = mistake_in(lines=[f'entry = "{entry}"', *LINES[1:]])
    assert error.line == 2
    assert "'entry' is" in str(error)


@pytest.mark.parametrize(
    ("added", "line", "rule"),
    [
        (["gird = 1"], 6, "unknown key 'gird' in the header; known: entry, grid"),
        (["[let]", "a = 1.5"], 7, "an expression is a text or a whole number"),
        (["[options]", 'fast_meth = "1"'], 7, "unknown key 'fast_meth' in [options]; known: fast_math, fma"),
        (["[fixed]", 'd = "T"'], 7, "a static dim is a whole number"),
        (["[fixed]", "d = true"], 7, "a static dim is a whole number"),
        (["[workspace]", "parts = 4"], 7, "[workspace] parts reads"),
        (["[workspace]", 'parts = "f32[("'], 7, "[workspace] parts"),
        (["[workspace]", 'parts = "f32[T,,4]"'], 7, "an empty axis"),
        (["[workspace]", 'parts = {array = "f32[T]", zero = true}'], 7, "unknown key 'zero' in [workspace] parts"),
        (["[workspace]", 'parts = {array = "f32[T]", zeroed = 1}'], 7, "true or false"),
        (["cooperative = 1"], 6, "'cooperative' is true or false, not 1"),
        (["cluster = []"], 6, "'cluster' has 0 entries; 1 to 3"),
        (["shared_bytes = true"], 6, "an expression is a text or a whole number"),
        (["let = 3"], 6, "'let' is a table"),
        (["start = 3"], 6, "'start' is a list of tables"),
        (["[[launch]]", *LINES], 2, "'entry' stands at the top and there are [[launch]] tables"),
        (["a = "], 6, "the header is not TOML"),
        (["[let]", "a = 1", "a = 2"], 8, "the header is not TOML"),
    ],
)
def test_mistakes_name_their_line_and_rule(added: list[str], line: int, rule: str) -> None:
    error = mistake_in(*added)
    assert rule in str(error)
    assert error.line == line


def test_a_mistake_in_the_toml_has_one_line_number_that_of_the_file() -> None:
    assert str(mistake_in("a = ")) == "k.cu:6: the header is not TOML: Invalid value"
    assert str(mistake_in('a = """')) == "k.cu:7: the header is not TOML: Unterminated string"


@pytest.mark.parametrize("missing", range(4))
def test_what_every_launch_must_give(missing: int) -> None:
    lines = [line for i, line in enumerate(LINES) if i != missing]
    assert f"the header gives no '{LINES[missing].split()[0]}'" in str(mistake_in(lines=lines))


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ('grid = ["T", 1, 1, 1]', "'grid' has 4 entries; 1 to 3"),
        ("grid = []", "'grid' has 0 entries"),
        ('grid = ["T T"]', "unexpected"),
        ("grid = [2.5]", "an expression is a text or a whole number"),
    ],
)
def test_mistakes_in_the_grid(line: str, rule: str) -> None:
    error = mistake_in(lines=[LINES[0], line, *LINES[2:]])
    assert error.line == 3
    assert rule in str(error)


def test_an_argument_that_is_no_expression() -> None:
    error = mistake_in(lines=[*LINES[:3], 'args = ["x", "i64(T) * (d)"]'])
    assert error.line == 5


def test_a_mistake_in_the_second_launch_is_not_blamed_on_the_first() -> None:
    error = mistake_in("[[launch]]", *LINES, "[[launch]]", *LINES[:2], 'block = ["B +"]', LINES[3], lines=[])
    assert error.line == 10
    error = mistake_in("[[launch]]", *LINES, "[[launch]]", *LINES[:3], lines=[])
    assert error.line == 7
    assert "gives no 'args'" in str(error)


def test_a_key_is_found_where_it_is_set_not_where_it_is_used() -> None:
    error = mistake_in("[let]", 'half = "per // 2"', "per = 1.5")
    assert error.line == 8


def test_a_comment_end_inside_the_header() -> None:
    error = mistake('/* tunesmith 1\nentry = "k"\n[require]\n"x" = "a */ b"\n')
    assert error.line == 4
    assert "'*/' inside the header" in str(error)


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("int x;\n", "no header"),
        ("", "no header"),
        ("int x; /* tunesmith 1\n*/", "no header"),
        ("/* tunesmith 2\n*/\n", "the header is of version 2; this reads version 1"),
        ('/* tunesmith 1\nentry = "k"\n', "the header's comment does not end"),
    ],
)
def test_no_header_that_can_be_read(source: str, rule: str) -> None:
    error = mistake(source)
    assert error.line == 1
    assert rule in str(error)
