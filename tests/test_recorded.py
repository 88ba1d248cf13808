"""Recorded spaces: real files whole and torn, lookups, failures by name, two workloads of one space."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tunesmith.errors import UsageError
from tunesmith.recorded import Recording
from tunesmith.trial import Status

FOLDER = Path(__file__).parents[1] / "benchmarks" / "recorded"

# configurations, failures by status, whether the file ends early: the table of the folder's README
FILES: dict[str, tuple[int, dict[str, int], bool]] = {
    "convolution_A100": (4362, {"over_limits": 155, "build_failed": 6}, False),
    "convolution_W6600": (4362, {}, False),
    "convolution_small_MI50": (2442, {}, False),
    "convolution2021_3090": (6768, {"build_failed": 1426, "over_limits": 122}, False),
    "dedispersion_MI250X": (11130, {}, False),
    "gemm_2080Ti": (17956, {}, False),
    "pnpoly_3090": (4092, {"over_limits": 318}, False),
    "hotspot_A4000": (1660, {}, True),
    "expdist_A4000": (2885, {"build_failed": 1380}, True),
    "h200/silu_and_mul_template_2": (3880, {}, False),
    "h200/topk_softmax_expose_1": (8064, {}, False),
}


@cache
def recording(name: str) -> Recording:
    if name.startswith("h200/"):
        return Recording.load(*(FOLDER / f"{name}_{t}.json.gz" for t in ("T16", "T4096")))
    return Recording.load(FOLDER / f"{name}.json.gz")


def write(path: Path, cache: dict[str, dict[str, Any]], **more: Any) -> Path:
    """A cache file of two parameters, as Kernel Tuner writes it."""
    header = {"kernel_name": "k", "tune_params_keys": ["A", "B"], "tune_params": {"A": [1, 2], "B": [0, 1]}, **more}
    path.write_text(json.dumps({**header, "cache": cache}, indent=0))
    return path


def entry(a: Any, b: Any, **more: Any) -> dict[str, dict[str, Any]]:
    return {f"{a},{b}": {"A": a, "B": b, **more}}


# --- the files there are -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_every_file_reads_as_its_readme_says(name: str) -> None:
    configurations, failures, torn = FILES[name]
    found = recording(name)
    assert len(found.space) == configurations
    assert found.torn is torn
    trials = [found.evaluate(config) for config in found.space]
    assert Counter(t.status.value for t in trials if t.status is not Status.OK) == failures
    assert all(t.measured == (t.status is Status.OK) for t in trials)
    assert all(t.reason.startswith("recorded as ") for t in trials if not t.measured)


@pytest.mark.parametrize("name", FILES)
def test_the_space_holds_the_recorded_rows_and_no_others(name: str) -> None:
    found = recording(name)
    rows = list(found.space)
    assert all(found.space.is_legal(row) for row in rows[:: len(rows) // 50])
    assert {tuple(row.values()) for row in rows} == set(found.entries)
    assert found.space.cartesian >= len(rows)


def test_every_recorded_file_is_tested() -> None:
    files = {str(f.relative_to(FOLDER)).removesuffix(".json.gz") for f in FOLDER.rglob("*.gz")}
    assert {f.removesuffix("_T16").removesuffix("_T4096") for f in files} == set(FILES)


def test_the_files_stay_small_enough_to_live_here() -> None:
    assert sum(f.stat().st_size for f in FOLDER.rglob("*.*")) < 4_000_000


# --- answers -----------------------------------------------------------------------------------------------------------


def test_a_lookup() -> None:
    found = recording("pnpoly_3090")
    config = {"between_method": 0, "block_size_x": 32, "tile_size": 1, "use_method": 0}
    trial = found.evaluate(config, number=7)
    (cell,) = trial.cells.values()
    assert (trial.number, trial.template, trial.config) == (7, "cn_pnpoly", config)
    assert cell.timing is not None
    assert cell.timing.time_us == pytest.approx(43553.86238098144)
    assert cell.timing.samples_us[0] == pytest.approx(43293.697357177734)
    assert len(cell.timing.samples_us) == 10
    assert cell.timing.low_us <= cell.timing.time_us <= cell.timing.high_us
    assert trial.seconds == pytest.approx({"build": 3.068055957555771e-05, "check": 0.0, "time": 0.436079402454197})
    assert trial.score == pytest.approx(found.baseline_us["pnpoly_3090"] / 43553.86238098144)


def test_a_configuration_that_was_not_recorded_is_illegal() -> None:
    found = recording("convolution_A100")
    config = {**found.space[0], "use_padding": 1, "block_size_x": 32}
    assert found.evaluate(config).status is Status.ILLEGAL
    assert found.evaluate(config).reason == found.space.why_illegal(config)


def test_a_value_that_does_not_exist_is_the_callers_mistake() -> None:
    found = recording("convolution_A100")
    with pytest.raises(UsageError, match="block_size_x = 17 is not among"):
        found.evaluate({**found.space[0], "block_size_x": 17})


def test_registers_where_they_were_recorded() -> None:
    trial = recording("hotspot_A4000").evaluate(recording("hotspot_A4000").space[0])
    ((kernel,),) = trial.resources.values()
    assert kernel.registers > 0


def test_half_of_the_successful_beat_the_median() -> None:
    found = recording("convolution_W6600")
    assert found.default is None
    scores = [found.evaluate(config).score or 0.0 for config in found.space]
    assert sum(score > 1 for score in scores) == len(scores) // 2


def test_a_pair_is_two_workloads_of_one_space() -> None:
    found = recording("h200/silu_and_mul_template_2")
    assert [w.dims for w in found.workloads] == [{"T": 16}, {"T": 4096}]
    trial = found.evaluate(found.space[0])
    small, large = (trial.cells[w.name].timing for w in found.workloads)
    assert small is not None
    assert large is not None
    assert small.time_us < 10 < large.time_us
    ratios = [us / t.time_us for us, t in zip(found.baseline_us.values(), (small, large), strict=True)]
    assert trial.score == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    assert trial.seconds == {}


def test_by_the_name_of_a_device() -> None:
    files = ",".join(str(FOLDER / f"h200/topk_softmax_expose_1_{t}.json.gz") for t in ("T16", "T4096"))
    assert len(Recording.named(f"recorded:{files}").workloads) == 2
    with pytest.raises(UsageError, match="names no recording"):
        Recording.named("recorded")


# --- odd files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"time": "CompilationFailedConfig"}, Status.BUILD_FAILED, "CompilationFailedConfig"),
        ({"GFLOP/s": "RuntimeFailedConfig"}, Status.OVER_LIMITS, "RuntimeFailedConfig"),
        ({"time": 1.0, "GB/s": "InvalidConfig"}, Status.OVER_LIMITS, "InvalidConfig"),
        ({"time": "SomethingNewConfig"}, Status.CRASHED, "SomethingNewConfig"),
        ({"time": 1e20}, Status.CRASHED, "no time was recorded (1e+20)"),
        ({"time": float("nan")}, Status.CRASHED, "no time was recorded (nan)"),
        ({}, Status.CRASHED, "no time was recorded (None)"),
    ],
)
def test_failures_by_name(tmp_path: Path, fields: dict[str, Any], status: Status, reason: str) -> None:
    found = Recording.load(write(tmp_path / "f.json", {**entry(1, 0, time=2.0), **entry(2, 1, **fields)}))
    trial = found.evaluate({"A": 2, "B": 1})
    assert (trial.status, trial.reason, trial.score) == (status, f"recorded as {reason}", None)
    assert found.baseline_us == {"f": 2000.0}


@pytest.mark.parametrize("times", [[], [0, 0, 0], None])
def test_without_single_times_there_is_only_the_mean(tmp_path: Path, times: Any) -> None:
    found = Recording.load(write(tmp_path / "f.json", entry(1, 0, time=0.5, times=times)))
    timing = found.evaluate({"A": 1, "B": 0}).cells["f"].timing
    assert timing is not None
    assert (timing.low_us, timing.time_us, timing.high_us, timing.samples_us) == (500.0, 500.0, 500.0, ())


@pytest.mark.parametrize("cut", [1, 2, 3, 30, 60, 90])
@pytest.mark.parametrize("packed", [False, True])
def test_a_torn_file_keeps_what_is_whole(tmp_path: Path, cut: int, packed: bool) -> None:
    cache = {k: v for i in (1, 2) for b in (0, 1) for k, v in entry(i, b, time=float(i), times=[1.0, 2.0]).items()}
    file = write(tmp_path / "f.json", cache)
    text = file.read_bytes()[:-cut]
    file.write_bytes(gzip.compress(text) if packed else text)
    found = Recording.load(file)
    assert found.torn
    assert (
        list(found.space)
        == [{"A": 1, "B": 0}, {"A": 1, "B": 1}, {"A": 2, "B": 0}, {"A": 2, "B": 1}][: len(found.space)]
    )
    assert len(found.space) >= (4 if cut < 3 else 3 if cut < 30 else 1)


def test_a_torn_archive_keeps_what_is_whole(tmp_path: Path) -> None:
    whole = FOLDER / "pnpoly_3090.json.gz"
    (tmp_path / "half.json.gz").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    found = Recording.load(tmp_path / "half.json.gz")
    assert found.torn
    assert 1000 < len(found.space) < 3000
    assert list(found.space)[:1000] == list(recording("pnpoly_3090").space)[:1000]


def test_values_that_are_no_whole_numbers_become_names(tmp_path: Path) -> None:
    cache = {**entry(True, 0.5, time=1.0), **entry(False, "half", time=2.0), **entry(True, 2.0, time=3.0)}
    found = Recording.load(write(tmp_path / "f.json", cache, tune_params={}))
    assert [p.values for p in found.space.parameters] == [(1, 0), ("0.5", "half", "2")]
    assert found.evaluate({"A": 1, "B": "2"}).cells["f"].timing.time_us == 3000.0  # type: ignore[union-attr]


def test_a_recorded_default_is_the_baseline_if_it_succeeded(tmp_path: Path) -> None:
    cache = {**entry(1, 0, time=4.0), **entry(1, 1, time="InvalidConfig"), **entry(2, 0, time=1.0)}
    named = Recording.load(write(tmp_path / "f.json", cache, default={"A": 1, "B": 0}))
    assert (named.space.template.default, named.baseline_us) == ({"A": 1, "B": 0}, {"f": 4000.0})
    failed = Recording.load(write(tmp_path / "f.json", cache, default={"A": 1, "B": 1}))
    assert (failed.space.template.default, failed.baseline_us) == ({"A": 1, "B": 1}, {"f": 2500.0})
    unnamed = Recording.load(write(tmp_path / "f.json", cache))
    assert unnamed.space.template.default == {"A": 2, "B": 1}  # the middle of each


def test_a_pair_holds_what_both_files_hold(tmp_path: Path) -> None:
    one = write(tmp_path / "one.json", {**entry(1, 0, time=1.0), **entry(2, 0, time=1.0), **entry(2, 1, time=1.0)})
    two = write(tmp_path / "two.json", {**entry(2, 1, time="InvalidConfig"), **entry(1, 0, time=2.0)})
    found = Recording.load(one, two)
    assert list(found.space) == [{"A": 1, "B": 0}, {"A": 2, "B": 1}]
    trial = found.evaluate({"A": 2, "B": 1})
    assert (trial.status, trial.score) == (Status.OVER_LIMITS, None)
    assert [cell.status for cell in trial.cells.values()] == [Status.OK, Status.OVER_LIMITS]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is no cache file"),
        ("{", "is no cache file"),
        ('{"tune_params_keys": ["A"]', "is no cache file"),
        ('{"cache": {}}', "is no cache file"),
        ('{"tune_params_keys": ["A"], "cache": {"1": {"time": 1}}}', "'1' does not hold every parameter"),
        ('{"tune_params_keys": ["A"], "cache": {}}', "no configuration stands in"),
        ('{"tune_params_keys": ["A"], "cache": {"1": {"A": 1}}}', "no configuration succeeded"),
    ],
)
def test_what_is_no_recording_says_so(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        Recording.load(tmp_path / "f.json")


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="other parameters"):
        Recording.load(FOLDER / "pnpoly_3090.json.gz", FOLDER / "gemm_2080Ti.json.gz")
    with pytest.raises(UsageError, match="two files of one name"):
        Recording.load(FOLDER / "pnpoly_3090.json.gz", FOLDER / "pnpoly_3090.json.gz")
    with pytest.raises(UsageError, match="cannot be read"):
        Recording.load(tmp_path / "nothing.json")
