"""What the elements of an argument may be: declared by the task, drawn with a seed.

An argument without declared values holds numbers from N(0, 1). A checker draws the same argument from several
*distributions*; each kind of values knows what that means for it, and never leaves what was declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunesmith.dtype import Dtype
from tunesmith.errors import TaskError
from tunesmith.expression import Expression, Undefined

Array = NDArray[Any]
# Larger arrays of N(mean, deviation²) repeat a block of this many numbers: a prime, so that no row, tile or page of a power
# of two meets its own data again. Drawing 117 million numbers took 4 s; a check draws them several times.
BLOCK = 4_194_319
DISTRIBUTIONS = ("normal", "scaled", "offset", "outliers", "constant_rows", "zeros", "extremes")


@dataclass(frozen=True)
class Draw:
    """What a generator may use: its random numbers, the shape asked for, the workload, and the arguments drawn before it."""

    rng: np.random.Generator
    shape: tuple[int, ...]
    dtype: Dtype
    dims: Mapping[str, int]
    types: Mapping[str, Dtype]
    arguments: Mapping[str, Array | float] = field(default_factory=dict)
    distribution: str = "normal"

    def __getitem__(self, name: str) -> Any:
        """An argument that was declared, and so drawn, before this one."""
        if name not in self.arguments:
            raise TaskError(f"a generator asks for {name!r}, which is not drawn before it", hint="declare it earlier")
        return self.arguments[name]


@dataclass(frozen=True)
class Normal:
    """Numbers from N(mean, deviation²); `also` lists special values that the operation defines, such as -inf."""

    mean: float = 0.0
    deviation: float = 1.0
    also: tuple[float, ...] = ()

    def draw(self, to: Draw) -> Array:
        if math.prod(to.shape) <= BLOCK or to.distribution == "constant_rows":
            return self._draw(to)
        block = self._draw(replace(to, shape=(BLOCK,)))
        with np.errstate(over="ignore"):
            return np.resize(block.astype(to.dtype.numpy), to.shape)

    def _draw(self, to: Draw) -> Array:
        x: Array = to.rng.standard_normal(_rows(to.shape), dtype=np.float32).astype(
            np.float64 if to.dtype.name == "f64" else np.float32
        )
        match to.distribution:
            case "scaled":
                x *= 10
            case "offset":
                x += 5
            case "outliers":
                _scatter(x, to.rng, lambda n: to.rng.choice([-60.0, 60.0], n))
            case "constant_rows":
                x[...] = x[..., :1]
            case "zeros":
                x[...] = 0
        x = x * self.deviation + self.mean
        if self.also and to.distribution == "extremes":
            _scatter(x, to.rng, lambda n: to.rng.choice(np.array(self.also), n))
        return x.reshape(to.shape)


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, both included; the bounds may be expressions over the dims."""

    low: float | str
    high: float | str
    also: tuple[float, ...] = ()

    def draw(self, to: Draw) -> Array:
        low, high = _bound(self.low, to.dims), _bound(self.high, to.dims)
        if 0 in to.shape:
            return np.zeros(to.shape)
        if not to.dtype.is_float:
            low, high = math.ceil(low), math.floor(high)
        if low > high:
            raise TaskError(f"values in [{self.low}, {self.high}]: the range is empty")
        if not to.dtype.is_float:
            return self._integers(to, int(low), int(high))
        x = to.rng.random(_rows(to.shape), dtype=np.float64) * (high - low) + low
        match to.distribution:
            case "constant_rows":
                x[...] = x[..., :1]
            case "zeros":
                x[...] = min(max(0.0, low), high)
            case "outliers":
                _scatter(x, to.rng, lambda n: to.rng.choice([low, high], n))
            case "extremes" if self.also:
                _scatter(x, to.rng, lambda n: to.rng.choice(np.array(self.also), n))
        return x.reshape(to.shape)

    def _integers(self, to: Draw, low: int, high: int) -> Array:
        size = math.prod(to.shape)
        match to.distribution:
            case "constant_rows":
                x = np.full(size, to.rng.integers(low, high + 1))
            case "zeros":
                x = np.full(size, low)
            case "extremes":
                x = np.full(size, high)
            case "offset":  # ascending: neighbours next to each other
                x = np.arange(size) % (high - low + 1) + low
            case _:
                x = to.rng.integers(low, high + 1, size)
        if self.also:
            _scatter(x, to.rng, lambda n: to.rng.choice(np.array(self.also), n))
        return x.reshape(to.shape)


@dataclass(frozen=True)
class Choice:
    """One of the given numbers, each as likely."""

    options: tuple[float, ...]

    def draw(self, to: Draw) -> Array:
        if to.distribution == "constant_rows":
            return np.full(to.shape, to.rng.choice(np.array(self.options)))
        return to.rng.choice(np.array(self.options), to.shape)


@dataclass(frozen=True)
class Given:
    """Exactly these elements: a constant, or captured data; broadcast to the shape."""

    data: Any

    def draw(self, to: Draw) -> Array:
        try:
            return np.array(np.broadcast_to(np.asarray(self.data), to.shape))
        except ValueError:
            raise TaskError(f"data of shape {np.shape(self.data)} for an argument of shape {to.shape}") from None


@dataclass(frozen=True)
class Generated:
    """The task's own function of a `Draw`."""

    function: Callable[[Draw], Any]

    def draw(self, to: Draw) -> Array:
        data = np.asarray(self.function(to))
        if data.shape != to.shape:
            name = getattr(self.function, "__name__", "a generator")
            raise TaskError(f"{name} gave shape {data.shape}; asked for {to.shape}")
        return data


Values = Normal | Range | Choice | Given | Generated


def values(declared: Any) -> Values:
    """What a task may write after `values=`: one of the kinds, a function of a `Draw`, a number, or data."""
    if isinstance(declared, Normal | Range | Choice | Given | Generated):
        return declared
    if declared is None:
        return Normal()
    if isinstance(declared, str | type):
        raise TaskError(
            f"values={declared!r}: write Normal(), Range(low, high), Choice(...), a number, data, or a function of a Draw"
        )
    return Generated(declared) if callable(declared) else Given(declared)


def _bound(bound: float | str, dims: Mapping[str, int]) -> int | float:
    if not isinstance(bound, str):
        return bound
    try:
        found = Expression.parse(bound).evaluate(dims)
        return found if isinstance(found, int) else float(found)
    except Undefined as error:
        raise TaskError(f"a bound of values, {bound!r}: {error}") from None


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape or (1,)


def _scatter(x: Array, rng: np.random.Generator, draw: Callable[[int], Array]) -> None:
    """Replace about one element in a thousand, one at least."""
    if x.size:
        at = rng.integers(0, x.size, max(1, x.size // 1000))
        x.reshape(-1)[at] = draw(at.size)
