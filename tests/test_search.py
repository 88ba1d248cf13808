"""The strategies against their contract, the contract against strategies that break it, and the door that finds them."""

from __future__ import annotations

import math
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunesmith.errors import UsageError
from tunesmith.search import BUILT_IN, Maker, Strategy, contract, find_strategy, known
from tunesmith.search.annealing import Annealing
from tunesmith.search.default import AHEAD, AHEAD_SHARE, HOPE, Default, _Chance
from tunesmith.search.evolution import Evolution, children
from tunesmith.search.features import Features
from tunesmith.search.gaussian import USUAL, Posterior, Scales, kernel, squared_distances
from tunesmith.search.memory import Memory
from tunesmith.search.random import Random
from tunesmith.space import Space
from tunesmith.template import Config, Parameter
from tunesmith.trial import Cell, Status, Timing, Trial

DOCS = Path(__file__).parent.parent / "docs"


def told(config: Config, score: float | None = None, status: Status = Status.OK, **more: Any) -> Trial:
    return Trial(0, "t", config, status, score=score, **more)


def parameter(name: str, *values: int | str) -> Parameter:
    return Parameter(name, values, values[0], None, "", 0)


def play(maker: Maker, space: Space, score: Callable[[Config], float | None], budget: int, width: int = 1,
         seed: int = 0) -> list[Trial]:  # fmt: skip
    """A search whose trials come back in the order in which they were asked."""
    strategy, trials = maker(space, np.random.default_rng(seed)), list[Trial]()
    under_way: list[Config] = []
    while len(trials) < budget:
        while len(under_way) < width and (config := strategy.ask()) is not None:
            under_way.append(config)
        if not under_way:
            break
        config = under_way.pop(0)
        found = score(config)
        trials.append(told(config, found, Status.OK if found else Status.CRASHED))
        strategy.tell(trials[-1])
    return trials


# --- the contract ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", contract.RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_strategies_keep_the_contract(name: str, rule: Callable[[Maker], None]) -> None:
    rule(find_strategy(name))


class Twice(Random):
    def ask(self) -> Config | None:
        return dict(super().ask() or {}) or self._memory.space.starts()[0]


class Illegal(Random):
    def ask(self) -> Config | None:
        config = super().ask()
        return config and {p.name: p.values[-1] for p in self._memory.space.parameters}


class Unfolded(Random):
    def ask(self) -> Config | None:
        config = super().ask()
        return {**config, "depth": 32} if config and config.get("method") == "direct" else config


class Whims(Random):
    def ask(self) -> Config | None:
        self._memory._drawn.sort(key=lambda row: random.random())
        return super().ask()


class Sleepy(Random):
    def ask(self) -> Config | None:
        return super().ask() if len(self._memory.rows) < 20 else None


class Trusting(Random):
    def tell(self, trial: Trial) -> None:
        assert trial.score is not None
        super().tell(trial)


class Discouraged(Random):
    def ask(self) -> Config | None:
        gone = len(self._memory.rows) > 5 and all(math.isnan(loss) for loss in self._memory.losses)
        return None if gone else super().ask()


class Contented(Random):
    def ask(self) -> Config | None:
        return None if len(self._memory.rows) > 5 and np.ptp(self._memory.losses) == 0 else super().ask()


class Lister(Random):
    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        super().__init__(space, rng)
        self.first = space.matrix[0]


class Impatient(Random):
    """Asks the last one again instead of None."""

    def ask(self) -> Config | None:
        self.last = super().ask() or self.last
        return self.last


BROKEN: tuple[tuple[Callable[[Maker], None], type, str], ...] = (
    (contract.asks_legal_configurations_once, Twice, "twice, with"),
    (contract.asks_legal_configurations_once, Illegal, "which is not legal: block * vec <= 512"),
    (contract.asks_legal_configurations_once, Unfolded, "which folds to"),
    (contract.repeats_itself, Whims, "asked otherwise from number"),
    (contract.waits_only_for_what_is_under_way, Sleepy, "None with nothing under way after 20 of"),
    (contract.ends_when_all_was_asked, Impatient, "after all 9 configurations were asked"),
    (contract.survives_failures, Discouraged, "gave up after 6 failures"),
    (contract.survives_ties, Contented, "gave up after 6 equal scores"),
    (contract.ends_where_nothing_is_legal, Lister, "index 0 is out of bounds"),
)


@pytest.mark.parametrize(("rule", "broken", "says"), BROKEN, ids=lambda x: getattr(x, "__name__", ""))
def test_the_contract_is_red_for_a_strategy_that_breaks_it(
    rule: Callable[[Maker], None], broken: Any, says: str
) -> None:
    with pytest.raises((AssertionError, IndexError), match=re.escape(says)):
        rule(broken)


def test_every_rule_has_a_strategy_that_breaks_it() -> None:
    assert {rule for rule, _, _ in BROKEN} == {*contract.RULES}


def test_all_rules_are_run() -> None:
    with pytest.raises(AssertionError):
        contract.check_strategy(Trusting)


def test_asks_do_not_depend_on_how_strings_hash(tmp_path: Path) -> None:
    """Sets and dicts of names come in another order in every process."""
    program = """
from tunesmith.search import BUILT_IN, contract, find_strategy
for name in BUILT_IN:
    print(name, list(contract._play(find_strategy(name), contract.conditional(), 6, contract._mixed)))
"""
    said = [
        subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                       capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1]


# --- the door ----------------------------------------------------------------------------------------------------------


def test_the_example_of_the_docs_is_found_in_its_file_and_keeps_the_contract(tmp_path: Path) -> None:
    text = (DOCS / "write-a-strategy.md").read_text()
    example = re.search(r"File: climb.py\n```python\n(.*?)```", text, re.DOTALL)
    assert example
    assert len(example[1].splitlines()) <= 30
    (tmp_path / "climb.py").write_text(example[1])
    maker = find_strategy(str(tmp_path / "climb.py"))
    contract.check_strategy(maker)
    assert find_strategy(f"{tmp_path}/climb.py:Climb").__name__ == "Climb"


def test_every_built_in_is_a_strategy() -> None:
    for name in BUILT_IN:
        assert isinstance(find_strategy(name)(contract.tiny(), np.random.default_rng(0)), Strategy)
    assert {*BUILT_IN} <= {*known()}


@pytest.mark.parametrize(
    ("source", "name", "says"),
    [
        ("", "", "should define one class with ask and tell; it has none"),
        ("class A:\n ask = tell = len\nclass B(A): pass", "", "it has A, B"),
        ("class A:\n ask = tell = len", ":C", "unknown strategy"),
        ("import nowhere", "", "ModuleNotFoundError: No module named 'nowhere'"),
        ("from tunesmith.search.random import Random", "", "it has none"),
    ],
)
def test_a_file_that_defines_no_strategy_is_refused(tmp_path: Path, source: str, name: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(UsageError, match=re.escape(says)):
        find_strategy(f"{tmp_path}/mine.py{name}")


def test_unknown_names_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="annealing"):
        find_strategy("anealing")
    with pytest.raises(UsageError, match="no such file"):
        find_strategy(f"{tmp_path}/none.py")


# --- what each one does ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_default_and_the_starting_points_come_first(name: str) -> None:
    space = contract.conditional()
    asked = [t.config for t in play(find_strategy(name), space, lambda _: 1.0, budget=len(space.starts()))]
    assert asked == space.starts()
    assert asked[0] == space.fold(space.template.default)


@pytest.mark.parametrize("name", [n for n in BUILT_IN if n != "exhaustive"])
def test_they_search_what_nobody_lists_and_find_more_than_chance(name: str) -> None:
    space = contract.huge()

    def score(config: Config) -> float | None:
        far = sum(abs(i - 4) for i in space.row(config).tolist())
        return None if config["i"] == 64 else math.exp(-far / 6)

    best = [max(t.score or 0 for t in play(find_strategy(name), space, score, 120, seed=s)) for s in range(2)]
    chance = [max(t.score or 0 for t in play(Random, space, score, 120, seed=s)) for s in range(2)]
    assert name == "random" or sum(best) > 1.3 * sum(chance)


def test_exhaustive_refuses_what_is_too_much() -> None:
    with pytest.raises(UsageError, match="482,092,800 configurations are too many"):
        find_strategy("exhaustive")(contract.huge(), np.random.default_rng(0))


def test_evolution_keeps_the_best_on_each_workload_as_a_parent() -> None:
    space = Space.of([parameter(n, *range(8)) for n in "abc"])
    evolution = Evolution(space, np.random.default_rng(0))
    for a in range(8):
        times = {"small": 10.0 - a, "large": 1.0 + a}
        cells = {name: Cell(name, timing=Timing(t, t, t)) for name, t in times.items()}
        evolution.tell(told({"a": a, "b": 0, "c": 0}, 8.0 - a, cells=cells))
    assert [int(row[0]) for row in evolution._parents()] == [0, 1, 2, 3, 7]


def test_children_are_legal_folded_and_differ_in_one_to_three_values() -> None:
    space = contract.huge()
    parent = space.row(space.starts()[0])
    made = children(space, [parent], 500, np.random.default_rng(0))
    assert space.legal(made).all()
    assert {*(made != parent).sum(1).tolist()} == {1, 2, 3}
    conditional = contract.conditional()
    rows = children(conditional, [conditional.row(c) for c in conditional.starts()], 200, np.random.default_rng(0))
    assert (conditional.fold_rows(rows) == rows).all()
    assert not len(children(space, [], 5, np.random.default_rng(0)))


def test_annealing_accepts_worse_ones_early_and_hardly_ever_late() -> None:
    def accepted(told_before: int) -> int:
        annealing = Annealing(contract.huge(), np.random.default_rng(0))
        annealing._loss, annealing._memory.rows = 0.0, [np.zeros(9, np.uint16)] * told_before
        return sum(annealing._accepts(0.1) for _ in range(200))

    assert accepted(1) > 100
    assert accepted(300) < 5


# --- the default -------------------------------------------------------------------------------------------------------


def test_failures_cast_a_shadow_and_what_worked_gives_light() -> None:
    space = Space.of([parameter(n, 1, 2, 4, 8, 16, 32) for n in "ab"])
    features, rows = Features.of(space), space.matrix
    scales = Scales.usual(features.groups, features.scales)
    scales.logs[:-1] = math.log(2.0)
    point = {tuple(row.tolist()): features.points(row[None, :])[0] for row in rows}
    model = _Chance(scales, point[5, 5][None, :], np.array([False]), features.points(rows))

    def chance(a: int, b: int) -> float:
        return float(model.over_pool()[(rows == (a, b)).all(1)][0])

    assert chance(5, 5) < 0.05
    assert chance(5, 5) < chance(4, 5) < chance(3, 5) < chance(0, 0)
    assert chance(0, 0) == pytest.approx(HOPE, abs=0.05)
    before = chance(3, 5)
    model.tell(point[3, 5], True)
    assert chance(3, 5) > 0.9 > before


def test_the_default_leaves_what_fails() -> None:
    """A third of the space fails, next to the best; random rows would fail 13 times in 40."""
    space = Space.of([parameter(n, 1, 2, 4, 8, 16, 32) for n in "abcd"])

    def score(config: Config) -> float | None:
        a, b, c, d = (math.log2(int(config[n])) for n in "abcd")
        return None if a > 3 else math.exp(-abs(a - 2) - abs(b - c) - abs(d - 3))

    trials = [t for seed in range(4) for t in play(Default, space, score, 50, seed=seed)[10:]]
    assert sum(t.score is None for t in trials) < 4 * 9


def test_the_default_asks_some_ahead_and_then_waits() -> None:
    """All of them different; many chosen before the first is told are chosen blindly."""
    space = contract.huge()
    strategy = Default(space, np.random.default_rng(0))
    asked = [strategy.ask() for _ in range(48)]
    first = [config for config in asked if config]
    assert len(first) == AHEAD == len({space.key(config) for config in first})
    for config in first * 5:
        strategy.tell(told(config, math.exp(-float(space.row(config).sum()) / 10)))
    more = [config for _ in range(48) if (config := strategy.ask())]
    assert len(more) == AHEAD + 5 * AHEAD * AHEAD_SHARE == len({space.key(config) for config in more})


def test_the_default_learns_what_a_bound_says() -> None:
    space = Space.of([parameter("a", *range(40))])
    strategy = Default(space, np.random.default_rng(0))
    asked = []
    for _ in range(20):
        config = strategy.ask()
        assert config is not None
        a = int(config["a"])
        asked.append(a)
        trial = told(config, 1.0 + a / 40) if a > 30 else told(config, None, Status.BEHIND, bound=0.5 + a / 80)
        strategy.tell(trial)
    assert max(asked) == 39


def test_what_was_told_but_never_asked_is_not_asked() -> None:
    for name in ("random", "annealing", "evolution", "default"):
        space = contract.tiny()
        strategy = find_strategy(name)(space, np.random.default_rng(0))
        asked = []
        for number in range(4):
            config = strategy.ask()
            assert config is not None
            strategy.tell(told(config, 1.0 + number))
            asked.append(space.key(config))
        other = next(config for config in space if space.key(config) not in asked)
        strategy.tell(told(other, 1.0))
        strategy.tell(told(other, None, Status.WRONG))
        asked += [space.key(config) for _ in range(4) if (config := strategy.ask())]
        assert len({*asked, space.key(other)}) == 9, name
        assert strategy.ask() is None


def test_a_memory_holds_losses_and_what_is_under_way() -> None:
    space = contract.tiny()
    memory = Memory(space, np.random.default_rng(0))
    first, second, third = (memory.anywhere() for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    memory.tell(told(first, 2.0))
    memory.tell(told(second, None, Status.BEHIND, bound=1.0))
    assert memory.losses == [-math.log(2.0), 0.0]
    assert memory.best(5) == [0]
    assert list(memory.under_way) == [space.row(third).tobytes()]
    memory.tell(told(third, None, Status.WRONG))
    assert math.isnan(memory.losses[2])
    assert len(memory.fresh(space.matrix)) == len(space) - 3


# --- the model ---------------------------------------------------------------------------------------------------------


def test_a_posterior_that_grew_says_what_one_made_at_once_says() -> None:
    rng = np.random.default_rng(0)
    points, pool, losses = rng.random((90, 3)), rng.random((50, 3)), rng.normal(size=90)
    scales = Scales.usual(np.arange(3), 3)
    grown = Posterior(scales, points[:5], pool)
    for point in points[5:]:
        grown.extend(point)
    made = Posterior(scales, points, pool)
    for ours, theirs in zip(grown.predict(losses), made.predict(losses), strict=True):
        assert np.allclose(ours, theirs, atol=2e-4)


def test_a_posterior_is_the_textbook_s() -> None:
    rng = np.random.default_rng(1)
    points, pool, losses = rng.random((20, 2)), rng.random((30, 2)), rng.normal(size=20)
    scales = Scales.usual(np.arange(2), 2)
    own, across = (kernel(squared_distances(USUAL * points, USUAL * other)) for other in (points, pool))
    weights = np.linalg.solve(own + scales.noise * np.eye(20), across)
    mean, spread = Posterior(scales, points, pool).predict(losses)
    assert np.allclose(mean, losses @ weights, atol=1e-3)
    assert np.allclose(spread**2, 1 - (across * weights).sum(0), atol=1e-3)


def test_scales_find_out_what_matters() -> None:
    rng = np.random.default_rng(2)
    points = rng.random((60, 3))
    losses = np.sin(6 * points[:, 0])
    scales = Scales.usual(np.arange(3), 3)
    for _ in range(3):
        scales.fit(points, (losses - losses.mean()) / losses.std())
    matters, *others = np.exp(scales.logs[:3])
    assert matters > 3 * max(others)
    assert scales.noise < 0.02


def test_roundness_is_a_coordinate_where_it_differs_from_size() -> None:
    def coordinates(*values: int | str) -> int:
        return Features.of(Space.of([parameter("p", *values)])).points(np.zeros((1, 1), np.uint16)).shape[1]

    assert coordinates(16) == 0
    assert coordinates(1, 2, 4, 8) == 1
    assert coordinates(32, 48, 64, 96) == 2
    assert coordinates("row", "column", "tile") == 3
    table = Features.of(Space.of([parameter("p", 32, 48, 64, 96, 128)])).tables[0]
    assert table[:, 1].tolist() == [0.5, 0.0, 1.0, 0.5, 1.0] or table[0, 1] == table[3, 1]
