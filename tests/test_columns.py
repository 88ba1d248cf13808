"""Columns against the scalar form: random trees on random rows agree on every one, values and absences."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunesmith.column import Column
from tunesmith.columns import columns
from tunesmith.expression import Expression, Undefined, Value, evaluate
from tunesmith.grammar import (
    FUNCTIONS,
    LIMIT,
    Binary,
    Call,
    Compare,
    Conditional,
    Logic,
    Lookup,
    Name,
    Node,
    Number,
    Unary,
)


class Facts:
    """Knows two sizes, and strides of x along two axes."""

    def lookup(self, function: str, name: str, argument: int | None) -> int | bool:
        if function == "sizeof":
            if name != "io":
                raise Undefined(f"sizeof({name})")
            return 2
        if function == "aligned":
            return argument is not None and argument > 0 and 16 % argument == 0
        if argument not in (0, 1):
            raise Undefined(f"stride({name}, {argument})")
        return (640, 1)[argument]


NAMES = ("a", "b", "c", "mode", "absent")
small = st.integers(-3, 9)
wide = st.one_of(small, small, st.sampled_from([LIMIT, LIMIT - 1, -LIMIT, 2**31, 2**61, 3**20, LIMIT + 1]))
leaves = st.one_of(
    st.builds(Number, st.one_of(small, st.booleans(), st.sampled_from([LIMIT, 2**40]))),
    st.builds(Name, st.sampled_from(NAMES)),
    st.builds(Name, st.sampled_from(("a", "b", "c"))),
    st.builds(Lookup, st.just("sizeof"), st.sampled_from(["io", "no"]), st.none()),
)


def larger(below: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    links = st.lists(st.tuples(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), below), min_size=1, max_size=3)
    calls = [
        st.builds(Call, st.just(name), st.lists(below, min_size=least, max_size=min(most, 3)).map(tuple))
        for name, (least, most) in FUNCTIONS.items()
    ]
    return st.one_of(
        st.builds(Unary, st.sampled_from(["-", "+", "not"]), below),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/", "//", "%"]), below, below),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/", "//", "%"]), below, below),
        st.builds(Compare, below, links.map(tuple)),
        st.builds(Logic, st.sampled_from(["and", "or"]), st.lists(below, min_size=2, max_size=3).map(tuple)),
        st.builds(Conditional, below, below, below),
        st.builds(Lookup, st.sampled_from(["stride", "aligned"]), st.just("x"), below),
        *calls,
    )


trees = st.recursive(leaves, larger, max_leaves=12)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "a": wide,
            "b": st.one_of(small, st.booleans(), st.fractions(-4, 4, max_denominator=6)),
            "c": small,
            "mode": st.sampled_from(["red", "green", "blue"]),
        }
    ),
    min_size=1,
    max_size=8,
)


def scalar(node: Node, row: dict[str, Value]) -> Value | None:
    try:
        return evaluate(node, row, Facts())
    except Undefined:
        return None


@given(trees, rows)
@settings(max_examples=700, deadline=None)
def test_a_column_is_the_scalar_form_on_every_row(node: Node, rows: list[dict[str, Value]]) -> None:
    names = {name: Column.of([row[name] for row in rows]) for name in rows[0]}
    found = columns(node, names, Facts()).broadcast((len(rows),)).list()
    wanted = [scalar(node, row) for row in rows]
    assert found == wanted
    assert [isinstance(v, Fraction) for v in found] == [isinstance(v, Fraction) for v in wanted]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a != 0 and 8 % a == 0", [False, True, True, False]),
        ("a == 0 or 8 % a == 0", [True, True, True, False]),
        ("8 // a if a > 1 else -1", [-1, -1, 4, 2]),
        ("8 // a", [None, 8, 4, 2]),
        ("8 / a", [None, 8, 4, Fraction(8, 3)]),
        ("8 / a * a == 8", [None, True, True, True]),
        ("0 < a < 3", [False, True, True, False]),
        ("1 < a < 8 // (a - 2)", [False, False, None, True]),
        ("a * 4611686018427387904", [0, LIMIT, None, None]),
        ("a * 4611686018427387904 / 2", [0, LIMIT // 2, None, None]),
        ("mode == red", [True, False, True, False]),
        ("mode < 3", [None] * 4),
        ("mode", ["red", "green", "red", "green"]),
        ("(mode == red) + a", [1, 1, 3, 3]),
        ("log2(a)", [None, 0, 1, None]),
        ("nothing", [None] * 4),
        ("a == 0 or nothing", [True, None, None, None]),
    ],
)
def test_a_column_of_a_text(text: str, wanted: list[Value | None]) -> None:
    names = {
        "a": Column.of([0, 1, 2, 3]),
        "mode": Column.of(["red", "green", "red", "green"]),
        "red": Column.constant("red"),
    }
    assert columns(Expression.parse(text).node, names).broadcast((4,)).list() == wanted


def test_columns_broadcast() -> None:
    names = {
        "a": Column.of([1, 2, 3]).each(lambda values: values[:, None]),
        "b": Column.of([0, 2]).each(lambda values: values[None, :]),
    }
    found = columns(Expression.parse("a % b == 0").node, names)
    assert found.shape == (3, 2)
    assert found.list() == [None, False, None, True, None, False]


def test_columns_of_different_kinds_concatenate() -> None:
    listed = [[1, 2], [Fraction(1, 2), None], ["red", 3]]
    assert Column.concatenate([Column.of(values) for values in listed]).list() == [1, 2, Fraction(1, 2), None, "red", 3]


def test_equal_rows_have_equal_parts() -> None:
    half = columns(Expression.parse("a / b").node, {"a": Column.of([1, 2, 1, 3, 0]), "b": Column.of([2, 4, 0, 0, 0])})
    parts = np.stack([np.asarray(part, np.int64) for part in half.parts()])
    assert len(np.unique(parts, axis=1).T) == 2  # 1/2, 1/2, and three without a value
