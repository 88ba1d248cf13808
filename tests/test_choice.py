"""Which finalists are chosen, from times with noise: the same every time, few, and only what is told apart."""

from __future__ import annotations

import math
import random

from tunesmith.choice import Choice, canonical, changed, choose, finalists, logs, places
from tunesmith.trial import Cell, Status, Timing, Trial

WEIGHTS = {"a": 1.0, "b": 1.0}


def trial(number: int, score: float | None, status: Status = Status.OK, **times: float) -> Trial:
    cells = {w: Cell(w, timing=Timing(us, us, us)) for w, us in times.items()}
    return Trial(number, "k", {}, status, score=score, cells=cells)


def finals(
    times: dict[int, dict[str, float]], *, noise: float = 0.0, seed: int = 0
) -> list[tuple[str, dict[int, float]]]:
    """What three processes say of finalists that really take so long; the baseline, 0, takes 100."""
    rng = random.Random(seed)
    found = []
    for _ in range(3):
        for workload in WEIGHTS:
            arms = {0: 100.0} | {n: us[workload] for n, us in times.items() if workload in us}
            drift = math.exp(rng.gauss(0, 0.05))  # of the process, the same for all
            found.append((workload, {n: us * drift * math.exp(rng.gauss(0, noise)) for n, us in arms.items()}))
    return found


def chosen(times: dict[int, dict[str, float]], defaults: dict[int, int] | None = None, **how: object) -> Choice:
    noise, seed = how.pop("noise", 0.0), how.pop("seed", 0)
    found = logs(finals(times, noise=noise, seed=seed))  # type: ignore[arg-type]
    return choose(found, WEIGHTS, defaults or dict.fromkeys(times, 0), **how)  # type: ignore[arg-type]


def test_finalists_are_the_best_by_score_and_on_each_workload() -> None:
    seen = [trial(n, 1 + n / 100, a=100 - n, b=100 - n) for n in range(1, 31)]
    seen += [
        trial(40, 0.5, a=1.0, b=400.0),
        trial(41, 9.0, Status.DUPLICATE, a=1.0, b=1.0),
        trial(42, None, Status.WRONG, a=0.5),
    ]
    found = finalists(seen)
    assert set(found[:8]) == set(range(23, 31))
    assert 40 in found
    assert not {41, 42} & set(found)
    assert finalists([]) == []


def test_what_was_stopped_as_behind_may_be_the_best_where_it_was_measured() -> None:
    both = {"a": Cell("a", timing=Timing(20, 20, 20)), "b": Cell("b", Status.BEHIND, timing=Timing(80, 80, 80))}
    special = Trial(2, "k", {}, Status.BEHIND, cells=both)
    assert finalists([trial(1, 4.0, a=25.0, b=25.0), special], each=1) == [1, 2]


def test_the_fastest_is_chosen() -> None:
    assert chosen({1: {"a": 50, "b": 50}, 2: {"a": 40, "b": 40}}) == Choice(2, {"a": 2, "b": 2})


def test_inside_the_noise_band_what_is_closest_to_the_default() -> None:
    near = {1: {"a": 50.0, "b": 50.0}, 2: {"a": 49.95, "b": 49.95}, 3: {"a": 45.0, "b": 45.0}}
    assert chosen(near, {1: 1, 2: 5, 3: 0}).general == 3
    del near[3]
    assert chosen(near, {1: 1, 2: 5}).general == 1
    assert chosen(near, {1: 5, 2: 1}).general == 2


def test_a_rerun_chooses_the_same() -> None:
    """Five near ties, measured with 0.3 % noise: the choice does not move, though the fastest does."""
    ties = {n: {"a": 50.0, "b": 50.0} for n in range(1, 6)}
    defaults = {1: 4, 2: 3, 3: 0, 4: 3, 5: 4}
    fastest, choices = set(), []
    for seed in range(50):
        found = logs(finals(ties, noise=0.003, seed=seed))
        fastest.add(min(ties, key=lambda n: sum(sum(found[w][n]) for w in WEIGHTS)))
        choices.append(choose(found, WEIGHTS, defaults).general)
    assert len(fastest) >= 4
    assert choices.count(3) >= 45


def test_a_second_kernel_has_to_earn_its_place() -> None:
    times = {1: {"a": 50.0, "b": 50.0}, 2: {"a": 49.7, "b": 80.0}}  # half a percent: not worth a kernel
    assert chosen(times) == Choice(1, {"a": 1, "b": 1})
    times[2]["a"] = 45.0
    assert chosen(times) == Choice(1, {"a": 2, "b": 1})
    assert chosen(times, max_kernels=1) == Choice(1, {"a": 1, "b": 1})
    assert chosen(times, alone=True) == Choice(1, {"a": 1, "b": 1})


def test_what_serves_one_workload_only_may_stand_in_the_table() -> None:
    times = {1: {"a": 50.0, "b": 50.0}, 2: {"a": 40.0}}
    assert chosen(times) == Choice(1, {"a": 2, "b": 1})
    assert chosen({2: {"a": 20.0}}) == Choice(2, {"a": 2})


def test_one_that_has_to_serve_everything_is_chosen_among_those_that_do() -> None:
    times = {1: {"a": 10.0}, 2: {"a": 60.0, "b": 60.0}}
    assert chosen(times).general == 1
    assert chosen(times, alone=True) == Choice(2, {"a": 2, "b": 2})


def test_where_the_general_configuration_loses_the_baseline_is_what_a_kernel_must_beat() -> None:
    times = {1: {"a": 10.0, "b": 250.0}, 2: {"a": 90.0, "b": 150.0}}  # both lose on b
    assert chosen(times) == Choice(1, {"a": 1, "b": 1})


def test_the_unit_of_the_weights_does_not_matter() -> None:
    times = {1: {"a": 50.0, "b": 50.0}, 2: {"a": 40.0, "b": 60.0}, 3: {"a": 44.0, "b": 70.0}}
    found = logs(finals(times, noise=0.001))
    choices = [choose(found, {"a": unit, "b": unit}, {1: 0, 2: 9, 3: 0}) for unit in (1e-3, 1.0, 1e3)]
    assert choices == [choices[0]] * 3
    assert choices[0].cells["a"] == 2


def test_a_score_of_total_time_is_chosen_by_total_time() -> None:
    found = logs([("a", {0: 10.0, 1: 5.0, 2: 10.0}), ("b", {0: 1000.0, 1: 1000.0, 2: 700.0})])
    assert choose(found, WEIGHTS, {1: 0, 2: 0}, max_kernels=1).general == 1
    assert choose(found, WEIGHTS, {1: 0, 2: 0}, max_kernels=1, base_us={"a": 10.0, "b": 1000.0}).general == 2


def test_a_process_in_which_an_arm_died_leaves_fewer() -> None:
    assert canonical({1: [0.0, 0.0, 0.0], 2: [0.5, 0.5]}, {1: 0, 2: 0}) == 1


def test_the_refused_are_out() -> None:
    times = {1: {"a": 50.0, "b": 50.0}, 2: {"a": 40.0, "b": 40.0}}
    assert chosen(times, without=(2,)) == Choice(1, {"a": 1, "b": 1})
    assert chosen(times, without=(1, 2)) == Choice(None, {})


def test_weights_decide_the_general_configuration() -> None:
    found = logs(finals({1: {"a": 40, "b": 60}, 2: {"a": 60, "b": 40}}))
    assert choose(found, {"a": 3, "b": 1}, {1: 0, 2: 0}).general == 1
    assert choose(found, {"a": 1, "b": 3}, {1: 0, 2: 0}).general == 2


def test_drift_of_a_process_is_shared_by_its_arms() -> None:
    assert canonical({1: [0.0, 0.5, -0.5], 2: [0.02, 0.52, -0.48]}, {1: 9, 2: 0}) == 1


def test_places_name_each_once() -> None:
    everywhere = {(n, w) for n in (1, 2) for w in "ab"}
    assert places(Choice(1, {"a": 1, "b": 2}), everywhere) == [(1, "a"), (2, "b"), (1, "b")]
    assert places(Choice(1, {"a": 1, "b": 2}), everywhere - {(1, "b")}) == [(1, "a"), (2, "b")]
    assert places(Choice(None, {}), everywhere) == []


def test_changes_are_counted_against_the_default() -> None:
    assert changed({"A": 1, "B": 2}, {"A": 1, "B": 3}) == 1
