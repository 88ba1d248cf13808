"""What every strategy keeps to, as plain functions: run them on your own before you search with it.

    from tunesmith.search.contract import check_strategy
    check_strategy(MyStrategy)

Each rule plays made-up searches on small, conditional and huge spaces, without a device, and raises AssertionError with a
sentence where the strategy breaks it. Says nothing of how good a strategy is, nor of how fast: `benchmarks/search.py`
measures both.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tunesmith.errors import UsageError
from tunesmith.expression import Expression
from tunesmith.search import Maker, Strategy
from tunesmith.space import Space
from tunesmith.template import Config, Parameter
from tunesmith.trial import Cell, Status, Timing, Trial

WIDTHS = (1, 6, 48)  # how many are under way at once
LONG = 100  # trials in a space that has more
PATIENCE = 3  # how often None has to be said at the end
FAILURES = (Status.BUILD_FAILED, Status.OVER_LIMITS, Status.CRASHED, Status.WRONG)


def check_strategy(maker: Maker) -> None:
    """Raise AssertionError, with what is wrong, where a strategy breaks a rule."""
    for rule in RULES:
        rule(maker)


# --- the rules ---------------------------------------------------------------------------------------------------------


def asks_legal_configurations_once(maker: Maker) -> None:
    """What is asked is whole, folded, legal, and was not asked before, whatever comes back and however many are under way."""
    for space, width in _cases():
        seen: set[tuple[int, ...]] = set()
        for config in _play(maker, space, width, _mixed):
            why = space.why_illegal(config)
            assert why is None, f"asked {_text(config)}, which is not legal: {why}"
            folded = space.fold(config)
            assert dict(config) == folded, f"asked {_text(config)}, which folds to {_text(folded)}; use space.fold"
            key = space.key(config)
            assert key not in seen, f"asked {_text(config)} twice, with {width} under way; compare space.key(config)"
            seen.add(key)


def repeats_itself(maker: Maker) -> None:
    """The same space, seed, asks and tells give the same configurations: that is how an interrupted search goes on."""
    for space, width in _cases():
        first, again = ([dict(config) for config in _play(maker, space, width, _mixed)] for _ in range(2))
        same = next((i for i, (a, b) in enumerate(zip(first, again, strict=False)) if a != b), len(again))
        assert first == again, (
            f"the second of two equal searches asked otherwise from number {same} on; draw only from the generator "
            "that it is made with, and let no clock, order of a set or global state in"
        )


def waits_only_for_what_is_under_way(maker: Maker) -> None:
    """Nothing is under way and something is left: then it asks."""
    for space, width in _cases():
        asked, wanted = _asked(maker, space, width, _mixed)
        assert asked >= wanted, f"None with nothing under way after {asked} of {_size(space)} ({width} at once)"


def ends_when_all_was_asked(maker: Maker) -> None:
    """After the last configuration of a space it says None, and goes on saying so."""
    space = tiny()
    strategy = _made(maker, space)
    if strategy is not None:
        for number in range(_size(space)):
            config = strategy.ask()
            assert config is not None, f"None after {number} of {_size(space)} configurations"
            strategy.tell(_mixed(space, config, number))
        for _ in range(PATIENCE):
            config = strategy.ask()
            assert config is None, f"asked {_text(config or {})} after all {_size(space)} configurations were asked"


def survives_failures(maker: Maker) -> None:
    """Where nothing but failures comes back it goes on."""
    for space, width in _cases():
        asked, wanted = _asked(maker, space, width, _failed)
        assert asked >= wanted, f"gave up after {asked} failures; there are {_size(space)} configurations"


def survives_ties(maker: Maker) -> None:
    """Where every score is the same it goes on."""
    for space, width in _cases():
        asked, wanted = _asked(maker, space, width, _equal)
        assert asked >= wanted, f"gave up after {asked} equal scores; there are {_size(space)} configurations"


def ends_where_nothing_is_legal(maker: Maker) -> None:
    """A space without a legal configuration is none to stumble over."""
    strategy = _made(maker, Space.of([_parameter("a", (1, 2))], ["a > 2"]))
    assert strategy is None or strategy.ask() is None, "asked something in a space where nothing is legal"


RULES: Sequence[Callable[[Maker], None]] = (
    asks_legal_configurations_once,
    repeats_itself,
    waits_only_for_what_is_under_way,
    ends_when_all_was_asked,
    survives_failures,
    survives_ties,
    ends_where_nothing_is_legal,
)


# --- the spaces --------------------------------------------------------------------------------------------------------


def tiny() -> Space:
    """Nine configurations, one parameter without a choice."""
    parameters = [_parameter("block", (64, 128, 256)), _parameter("vec", (1, 2, 4, 8)), _parameter("way", ("row",))]
    return Space.of(parameters, ["block * vec <= 512"])


def conditional() -> Space:
    """A switch under which other parameters come alive, as models write them."""
    parameters = [
        _parameter("method", ("direct", "staged", "split")),
        _parameter("block", (64, 128, 256, 512)),
        _parameter("stages", (2, 3, 4, 5), "method == staged"),
        _parameter("depth", (16, 32), "method == staged"),
        _parameter("parts", (1, 2, 4, 8), "method == split"),
        _parameter("order", ("row", "column"), "parts > 1"),
    ]
    return Space.of(parameters, ["stages * block <= 2048"])


def huge() -> Space:
    """10^9 combinations, which nobody lists."""
    values = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
    parameters = [_parameter(name, values) for name in "abcdefghi"]
    return Space.of(parameters, ["a * b <= 256", "(c + d) % 2 == 0", "e <= f * g"])


def _cases() -> Iterator[tuple[Space, int]]:
    for space in (tiny(), conditional(), huge()):
        for width in WIDTHS:
            yield space, width


def _parameter(name: str, values: Sequence[int | str], when: str = "") -> Parameter:
    return Parameter(name, tuple(values), values[0], Expression.parse(when) if when else None, "", 0)


def _size(space: Space) -> int:
    return space.count().value


# --- the answers -------------------------------------------------------------------------------------------------------

Answer = Callable[[Space, Config, int], Trial]


def _mixed(space: Space, config: Config, number: int) -> Trial:
    """A smooth score with two workloads; an eighth fails, another is behind, another is somebody's twin."""
    row = space.row(config)
    luck = hashlib.sha256(row.tobytes()).digest()[0] % 8
    if luck == 0:
        return _failed(space, config, number)
    away = sum((int(i) - len(p.values) // 2) ** 2 / len(p.values) for i, p in zip(row, space.parameters, strict=True))
    if luck == 1:
        return Trial(number, "contract", config, Status.BEHIND, "slower", bound=math.exp(-away / 8))
    cells = {name: Cell(name, timing=Timing(t, t, t)) for name, t in (("small", 1 + away), ("large", 50 + away))}
    found = Status.DUPLICATE if luck == 2 else Status.OK
    return Trial(number, "contract", config, found, cells=cells, score=math.exp(-away / 8))


def _failed(space: Space, config: Config, number: int) -> Trial:
    return Trial(number, "contract", config, FAILURES[number % len(FAILURES)], "made up")


def _equal(space: Space, config: Config, number: int) -> Trial:
    return Trial(number, "contract", config, Status.OK, cells={}, score=1.0)


# --- a made-up search --------------------------------------------------------------------------------------------------


def _made(maker: Maker, space: Space) -> Strategy | None:
    """None where the strategy refuses the space with a message for its user."""
    try:
        return maker(space, np.random.default_rng(1))
    except UsageError:
        return None


def _play(maker: Maker, space: Space, width: int, answer: Answer) -> Iterator[Config]:
    """What is asked with `width` under way, which end in any order."""
    strategy, lots = _made(maker, space), np.random.default_rng(2)
    under_way: list[tuple[int, Config]] = []
    asked = 0
    if strategy is None:
        return
    while asked < LONG or under_way:
        while asked < LONG and len(under_way) < width and (config := strategy.ask()) is not None:
            under_way.append((asked, config))
            asked += 1
            yield config
        if not under_way:
            return
        number, config = under_way.pop(int(lots.integers(len(under_way))))
        strategy.tell(answer(space, config, number))


def _asked(maker: Maker, space: Space, width: int, answer: Answer) -> tuple[int, int]:
    """How many configurations were asked, and how many there were to ask; none in a space that it refuses."""
    wanted = min(LONG, _size(space)) if _made(maker, space) is not None else 0
    return len(list(_play(maker, space, width, answer))), wanted


def _text(config: Config) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())
