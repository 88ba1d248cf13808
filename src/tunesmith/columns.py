"""Expressions on whole columns: a value per row, in exact agreement with the scalar form in `expression.py`.

Knows operations, not templates. Nothing is short-circuited but everything is masked: an operation is computed on all
rows, and a row without a value only counts where the scalar form would have looked. Arrays broadcast. Invariant: int64
never wraps, because sizes are carried along; where they cannot show it, the scalar form computes the distinct rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tunesmith.column import Array, Column, either, truth_of
from tunesmith.expression import Facts, Undefined, Value, arithmetic, call, compare
from tunesmith.grammar import (
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
    children,
)

Operation = tuple[str, ...]  # ("binary", "+"), ("compare", "<", "<="), ("logic", "and"), ("if",), ("call", "min"), ...
INT32 = 2**31 - 1


def columns(node: Node, names: Mapping[str, Column], facts: Facts | None = None) -> Column:
    """Evaluate a tree on the columns of its names."""
    match node:
        case Number(value):
            return Column.constant(value)
        case Name(name):
            return names[name] if name in names else Column.constant(None)
    return apply(operation(node), [columns(child, names, facts) for child in children(node)], facts)


def operation(node: Node) -> Operation:
    """What a node does with the values of its children."""
    match node:
        case Unary(op, _):
            return ("unary", op)
        case Binary(op, _, _):
            return ("binary", op)
        case Compare(_, rest):
            return ("compare", *(op for op, _ in rest))
        case Logic(op, _):
            return ("logic", op)
        case Conditional():
            return ("if",)
        case Call(function, _):
            return ("call", function)
        case Lookup(function, name, _):
            return ("lookup", function, name)
        case _:
            raise TypeError(f"{node} is a leaf")


def apply(op: Operation, operands: Sequence[Column], facts: Facts | None = None) -> Column:
    """Compute one operation on whole columns."""
    match op:
        case ("binary", symbol):
            return _arithmetic(symbol, _number(operands[0]), _number(operands[1]))
        case ("compare", *symbols):
            return _compare(symbols, operands)
        case ("logic", word):
            return _logic(word, operands)
        case ("any",):  # not of the language: holds where one operand is true, and always has a value
            found = operands[0].holds()
            for operand in operands[1:]:
                found = found | operand.holds()
            return Column(found, 1)
        case ("none",):
            return Column(~apply(("any",), operands).values, 1)
        case ("if",):
            return _conditional(*operands)
        case ("unary", "not"):
            truth, undefined = truth_of(operands[0])
            return Column(~truth, 1, undefined=undefined)
        case ("unary", symbol):
            number = _number(operands[0])
            return replace(number, values=-number.values) if symbol == "-" else number
        case ("call", function):
            return _call(function, [_number(operand) for operand in operands])
        case ("lookup", function, name):
            return _lookup(function, name, operands, facts)
        case _:
            raise TypeError(f"unknown operation {op}")


# --- parts of operations ----------------------------------------------------------------------------------------------


def _number(column: Column) -> Column:
    """The column as numbers: names have no value, truth values are 0 and 1."""
    values = column.values.astype(np.int64) if column.values.dtype == bool else column.values
    size = max(1, column.size)
    return Column(values, size, column.divisor, column.divisor_size, either(column.undefined, column.named))


def _over(values: Array, divisor: Array, size: int, divisor_size: int) -> Column:
    """A column of ratios; divisors are made positive."""
    if bool((divisor < 0).any()):
        values, divisor = np.where(divisor < 0, -values, values), np.abs(divisor)
    return Column(values, size, divisor, divisor_size)


def _by_rows(function: Callable[..., Value], operands: Sequence[Column]) -> Column:
    """The scalar form on each distinct row: exact for any magnitude, slow."""
    shape = np.broadcast_shapes(*(o.shape for o in operands))
    flat = [o.broadcast(shape).each(np.ravel) for o in operands]
    parts = np.stack([np.asarray(p, np.int64) for o in flat for p in o.parts()])
    _, first, inverse = np.unique(parts, axis=1, return_index=True, return_inverse=True)
    rows = zip(*(o.take(first).list() for o in flat), strict=True)
    return (
        Column.of([_scalar(function, row) for row in rows]).take(inverse.reshape(-1)).each(lambda a: a.reshape(shape))
    )


def _scalar(function: Callable[..., Value], row: tuple[Value | None, ...]) -> Value | None:
    if any(value is None for value in row):
        return None
    try:
        return function(*row)
    except Undefined:
        return None


# --- operations --------------------------------------------------------------------------------------------------------


def _arithmetic(op: str, a: Column, b: Column) -> Column:
    undefined = either(a.undefined, b.undefined)
    if op in ("/", "//", "%") and bool((zero := b.values == 0).any()):
        undefined = either(undefined, zero)
        b = replace(b, values=np.where(zero, 1, b.values))
    whole = a.divisor is None and b.divisor is None and op != "/"
    found = _whole(op, a, b) if whole else _ratios(op, a, b)
    if found is None:
        return _by_rows(lambda x, y: arithmetic(op, x, y), [a, replace(b, undefined=undefined)])
    return replace(found, undefined=undefined)


def _whole(op: str, a: Column, b: Column) -> Column | None:
    """Whole numbers, where int64 is known to hold them."""
    size = {"+": a.size + b.size, "-": a.size + b.size, "*": a.size * b.size, "//": a.size, "%": b.size}[op]
    if size > LIMIT:
        return None
    x, y = a.values, b.values
    match op:
        case "+":
            return Column(x + y, size)
        case "-":
            return Column(x - y, size)
        case "*":
            return Column(x * y, size)
    if max(a.size, b.size) <= INT32:  # division of 32 bits takes half the time
        x, y = x.astype(np.int32), y.astype(np.int32)
    return Column((x // y if op == "//" else x % y).astype(np.int64), size)


def _ratios(op: str, a: Column, b: Column) -> Column | None:
    """Ratios over their common divisor, where int64 is known to hold all of it."""
    one = np.ones((), np.int64)
    da, db = one if a.divisor is None else a.divisor, one if b.divisor is None else b.divisor
    left, right, both = a.size * b.divisor_size, b.size * a.divisor_size, a.divisor_size * b.divisor_size
    if max(left + right, both, a.size * b.size) > LIMIT:
        return None
    if op == "*":
        return _over(a.values * b.values, da * db, a.size * b.size, both)
    x, y = a.values * db, b.values * da
    match op:
        case "+":
            return _over(x + y, da * db, left + right, both)
        case "-":
            return _over(x - y, da * db, left + right, both)
        case "/":
            quotient = x // y
            return Column(quotient, left) if bool((quotient * y == x).all()) else _over(x, y, left, right)
        case "//":
            return Column(x // y, left)
        case _:
            return _over(x % y, da * db, right, both)


def _compare(symbols: Sequence[str], operands: Sequence[Column]) -> Column:
    left, undefined = operands[0], operands[0].undefined
    result: Array | None = None  # so far; a comparison behind a false one is not looked at
    for symbol, right in zip(symbols, operands[1:], strict=True):
        truth, lost = _compared(symbol, left, right)
        if (missing := either(right.undefined, lost)) is not None:
            undefined = either(undefined, missing if result is None else missing & result)
        result = truth if result is None else result & truth
        left = right
    assert result is not None
    return Column(result, 1, undefined=undefined)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip


def _compared(symbol: str, a: Column, b: Column) -> tuple[Array, Array | None]:
    """One comparison, and where it meets a name that it cannot order."""
    names = either(a.named, b.named)
    if a.divisor is None and b.divisor is None:
        truth = _COMPARE[symbol](a.values, b.values)
    elif max(a.size * b.divisor_size, b.size * a.divisor_size) <= LIMIT:
        one = np.ones((), np.int64)
        da, db = one if a.divisor is None else a.divisor, one if b.divisor is None else b.divisor
        truth = _COMPARE[symbol](a.values * db, b.values * da)
    else:
        plain = [replace(c, named=None, undefined=None) for c in (a, b)]
        truth = _by_rows(lambda x, y: compare(symbol, x, y), plain).values
    if names is None or symbol not in ("==", "!="):
        return truth, names
    none = np.zeros((), bool)
    differ = (none if a.named is None else a.named) != (none if b.named is None else b.named)
    return np.where(differ, symbol == "!=", truth), None


def _logic(word: str, operands: Sequence[Column]) -> Column:
    result, undefined = truth_of(operands[0])
    for operand in operands[1:]:
        truth, missing = truth_of(operand)
        if missing is not None:
            undefined = either(undefined, missing & (result if word == "and" else ~result))
        result = result & truth if word == "and" else result | truth
    return Column(result, 1, undefined=undefined)


def _conditional(test: Column, then: Column, otherwise: Column) -> Column:
    truth, undefined = truth_of(test)

    def chosen(a: Array | None, b: Array | None, filler: int) -> Array | None:
        if a is None and b is None:
            return None
        return np.where(truth, filler if a is None else a, filler if b is None else b)

    if then.values.dtype != otherwise.values.dtype:
        then, otherwise = (replace(c, values=c.values.astype(np.int64)) for c in (then, otherwise))
    return Column(
        np.where(truth, then.values, otherwise.values),
        max(then.size, otherwise.size),
        chosen(then.divisor, otherwise.divisor, 1),
        max(then.divisor_size, otherwise.divisor_size),
        either(undefined, chosen(then.undefined, otherwise.undefined, False)),
        chosen(then.named, otherwise.named, False),
    )


def _call(function: str, operands: Sequence[Column]) -> Column:
    if any(o.divisor is not None for o in operands):
        return _by_rows(lambda *row: call(function, list(row)), operands)
    undefined, a = either(*(o.undefined for o in operands)), operands[0]
    size = max(o.size for o in operands)
    match function:
        case "min" | "max":
            values = a.values
            for other in operands[1:]:
                values = (np.minimum if function == "min" else np.maximum)(values, other.values)
            return Column(values, size, undefined=undefined)
        case "ceil_div" | "round_up":
            rounded = _arithmetic("//", replace(a, values=-a.values), operands[1])
            rounded = replace(rounded, values=-rounded.values)
            return rounded if function == "ceil_div" else _arithmetic("*", rounded, operands[1])
        case "is_pow2":
            return Column(_is_pow2(a.values), 1, undefined=undefined)
        case "log2":
            exponent = np.frexp(a.values.astype(np.float64))[1].astype(np.int64) - 1
            wrong = ~_is_pow2(a.values)
            return Column(np.where(wrong, 0, exponent), 62, undefined=either(undefined, wrong if wrong.any() else None))
        case _:
            return Column(np.abs(a.values), a.size, undefined=undefined)


def _is_pow2(values: Array) -> Array:
    return np.asarray((values > 0) & (values & (values - 1) == 0))


def _lookup(function: str, name: str, operands: Sequence[Column], facts: Facts | None) -> Column:
    if facts is None:
        return Column.constant(None)
    if not operands:
        return Column.constant(_scalar(lambda: facts.lookup(function, name, None), ()))

    def asked(argument: Value) -> Value:
        if not isinstance(argument, int):
            raise Undefined(f"{function}({name}, {argument}): not a whole number")
        return facts.lookup(function, name, int(argument))

    return _by_rows(asked, [_number(operands[0])])
