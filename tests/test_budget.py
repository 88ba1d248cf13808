"""What a search may spend, and when it ends by itself."""

from __future__ import annotations

import pytest

from tunesmith.budget import QUIET, Budget, enough, outlook, progress
from tunesmith.errors import UsageError
from tunesmith.sharing import FIRST, Sharing
from tunesmith.trial import Cell, Incumbent, Status, Timing, Trial

W = ["w"]


def scored(*scores: float | None, target: float | None = None, slow: float = 1.0) -> list[Trial]:
    cells = {"w": Cell("w", timing=Timing(10.0, 10.0, 10.0 * slow), target_fraction=target)}
    return [
        Trial(i, "k", {}, Status.OK if s else Status.WRONG, score=s, cells=cells if s else {})
        for i, s in enumerate(scores, 1)
    ]


@pytest.mark.parametrize(
    ("texts", "budget"),
    [
        ((), Budget(seconds=300.0)),
        (("90s",), Budget(seconds=90.0)),
        (("5m", "200trials"), Budget(seconds=300.0, trials=200)),
        (("1h", "60device-s", "8calls"), Budget(seconds=3600.0, device_s=60.0, calls=8)),
        (("1.5m",), Budget(seconds=90.0)),
    ],
)
def test_budgets_as_people_write_them(texts: tuple[str, ...], budget: Budget) -> None:
    assert Budget.parse(texts) == budget


@pytest.mark.parametrize("texts", [("5",), ("five minutes",), ("0s",), ("-5m",), ("1.5trials",), ("5m", "300s"), ("",)])
def test_what_is_no_budget(texts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="--budget"):
        Budget.parse(texts)


def test_the_first_limit_reached_ends_it() -> None:
    budget = Budget(seconds=10, trials=5, device_s=2)
    assert budget.over(seconds=9, asked=4, device_s=1) == ""
    assert "5 trials" in budget.over(seconds=9, asked=5, device_s=1)
    assert "10 s" in budget.over(seconds=10, asked=4, device_s=1)
    assert "2 seconds of the device" in budget.over(seconds=9, asked=4, device_s=2)
    assert budget.spent(seconds=5, asked=4, device_s=0) == pytest.approx(0.8)


def test_a_search_ends_when_nothing_moves_for_long() -> None:
    moving = [1.01**i for i in range(QUIET)]
    assert enough(scored(*moving), 10**6, W) == ""
    still = scored(*moving, *[1.0] * QUIET)
    assert enough(still, 10**6, W).startswith(
        f"nothing moved for {QUIET} trials; the second half of the trials brought"
    )
    assert enough(scored(*moving, *[moving[-1] * 1.001] * QUIET), 10**6, W)  # less than noise is no move
    assert enough(scored(*[None] * 500), 10**6, W) == ""  # nothing right yet: go on


def test_a_search_ends_at_the_target() -> None:
    assert enough(scored(1.0, target=0.97), 10**6, W) == ""
    assert enough(scored(1.0, target=1.01), 10**6, W).startswith("the target is reached: 1.01")
    assert enough(scored(1.0, target=1.01, slow=1.05), 10**6, W) == ""  # one lucky time ends no search


def test_the_target_is_reached_on_every_workload_or_not_at_all() -> None:
    """One that the leader does not serve is not at its target."""
    assert enough(scored(1.0, target=1.01), 10**6, ["w", "v"]) == ""
    assert "target" not in outlook(scored(1.0, target=1.01), ["w", "v"])


def test_all_configurations_is_said_only_of_an_exact_count() -> None:
    assert enough(scored(1.0, 1.1), 2, W) == "all 2 legal configurations were tried"
    assert enough(scored(1.0, 1.1), None, W) == ""


def test_who_is_patient_goes_on() -> None:
    still = scored(1.0, *[1.0] * 500)
    assert enough(still, 10**6, W)
    assert enough(still, 10**6, W, patient=True) == ""


def test_what_is_still_to_be_gained() -> None:
    trials = scored(1.0, 1.1, 1.2, 1.2, 1.2, 1.32, target=0.8)
    assert outlook(trials, W) == "the second half of the trials brought 10.0 %; the target is 1.25x away"
    assert progress(trials) == [(1, 1.0), (2, 1.1), (3, 1.2), (6, 1.32)]
    assert outlook([], W) == ""


# --- several templates -------------------------------------------------------------------------------------------------


def test_a_little_on_each_then_more_on_what_leads() -> None:
    sharing = Sharing(["slow", "fast", "broken"])
    given: list[str] = []
    for _ in range(300):
        name = sharing.order()[0]
        given.append(name)
        sharing.asked(name, True)
        score = {"slow": 1.0, "fast": 1.3, "broken": None}[name]
        sharing.told(Trial(len(given), name, {}, Status.OK if score else Status.WRONG, score=score))
    assert {name: given[: 3 * FIRST].count(name) for name in sharing.names} == dict.fromkeys(sharing.names, FIRST)
    later = given[3 * FIRST :]
    assert later.count("fast") > 0.85 * len(later)
    assert later.count("slow") > 0  # never given up altogether
    assert later.count("broken") > 0


def shared(sharing: Sharing, trials: int, speed: dict[str, float], most: dict[str, int], depth: int) -> dict[str, int]:
    """Ask and tell with so many under way; a template may have only so many under way, or in all."""
    under_way: list[str] = []
    given = dict.fromkeys(speed, 0)
    for number in range(trials):
        while len(under_way) < depth and sum(given.values()) < trials:
            for name in sharing.order():
                has = given[name] < most.get(name, 10**6) and under_way.count(name) < 8 + given[name] // 4
                waits = sharing.asked(name, has)
                if has:
                    given[name] += 1
                    under_way.append(name)
                if has or waits:
                    break
            else:
                break
            if not has:
                break
        if not under_way:
            break
        name = under_way.pop(0)
        sharing.told(Trial(number, name, {}, Status.OK, score=speed[name]))
    return given


def test_a_template_that_has_nothing_left_does_not_hold_up_the_others() -> None:
    found = shared(
        Sharing(["none", "slow", "fast"]), 300, {"none": 1.0, "slow": 1.0, "fast": 2.0}, {"none": 1}, depth=4
    )
    assert found["none"] == 1
    assert found["fast"] > 0.85 * 300


def test_a_deep_queue_is_not_filled_with_what_lost() -> None:
    found = shared(Sharing(["a", "b", "c"]), 400, {"a": 1.3, "b": 1.0, "c": 0.9}, {}, depth=48)
    assert found["a"] > 0.75 * 400


# --- racing ------------------------------------------------------------------------------------------------------------

BASE = {"a": 100.0, "b": 100.0}
EVEN = {"a": 1.0, "b": 1.0}


def test_behind_is_what_neither_score_nor_its_own_workload_can_save() -> None:
    best = Incumbent(4.0, {"a": 25.0, "b": 25.0})
    alone = best.behind_us("a", {}, BASE, EVEN, "speedup", 1.25)
    assert alone == pytest.approx(25 * 1.25**2)  # the other workload could still be as fast as the best
    assert best.behind_us("b", {"a": 25.0}, BASE, EVEN, "speedup", 1.25) == pytest.approx(25 * 1.25**2)
    assert best.behind_us("b", {"a": 50.0}, BASE, EVEN, "speedup", 1.25) == pytest.approx(
        25 * 1.25
    )  # never less than its own
    assert best.behind_us("a", {}, BASE, {"a": 9.0, "b": 1.0}, "speedup", 1.25) == pytest.approx(25 * 1.25 ** (10 / 9))


def test_without_a_time_of_every_workload_nothing_is_behind() -> None:
    assert Incumbent(2.0, {"a": 50.0}).behind_us("a", {}, BASE, EVEN, "speedup", 1.25) is None
    assert Incumbent(2.0, {"a": 50.0}).at_most({}, BASE, EVEN) is None


def test_what_is_not_measured_yet_is_taken_to_be_as_fast_as_the_best() -> None:
    best = Incumbent(4.0, {"a": 25.0, "b": 20.0})
    assert best.at_most({"a": 80.0}, BASE, EVEN) == pytest.approx((100 / 80 * 5) ** 0.5)
    assert best.at_most({"a": 80.0}, BASE, EVEN, "time") == pytest.approx(2.0)
