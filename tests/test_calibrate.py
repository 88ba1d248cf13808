"""What a device reaches: between measured sizes, on disk, and measured for real on a CPU. No wall time is asserted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunesmith import calibrate as module
from tunesmith.binding import Binding
from tunesmith.build import BUILT, FAILED
from tunesmith.calibrate import Calibration, Peak, calibrate, interpolated, load
from tunesmith.compiling import Compilers
from tunesmith.data import Layout, layouts
from tunesmith.device import Device, find_device
from tunesmith.errors import MissingError
from tunesmith.gates import program_of
from tunesmith.limits import named
from tunesmith.messages import Candidate, Case, RunCheck
from tunesmith.rotation import Rotation
from tunesmith.task import Setting, Workload
from tunesmith.template import Template

TABLE = ((1 << 12, 2.0), (1 << 20, 2.0), (1 << 24, 8.0), (1 << 30, 512.0))
CUDA, OPENCL = (Template.load(module.KERNELS / f"calibration{suffix}") for suffix in (".cu", ".cl"))


class Somewhere:
    """A device as far as its calibration's file is concerned."""

    language, backend, kind = "opencl", "opencl", "cpu"

    def __init__(self, **facts: Any) -> None:
        self.facts = {"name": "a CPU", "arch": "cpu", "driver": "3.1", "compute_units": 2, "celsius": 40, **facts}


def known(device: Any) -> Calibration:
    return Calibration(
        module._identity(device), TABLE, ((4096, 1.0),), {"f32": Peak(1e12, "fma"), "bf16": Peak(9e14, "wgmma")}, 1.5
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNESMITH_CACHE", str(tmp_path))
    return tmp_path


# --- between sizes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "us"), TABLE)
def test_a_measured_size_is_as_measured(size: int, us: float) -> None:
    assert interpolated(TABLE, size) == pytest.approx(us)


def test_between_two_sizes_the_logarithms_are_straight() -> None:
    assert interpolated(TABLE, 1 << 22) == pytest.approx(4.0)
    assert interpolated(TABLE, 1 << 27) == pytest.approx(64.0)


def test_below_the_smallest_size_a_launch_is_all_there_is_and_beyond_the_largest_bandwidth() -> None:
    assert interpolated(TABLE, 1) == 2.0
    assert interpolated(TABLE, 1 << 31) == pytest.approx(1024.0)


@given(st.lists(st.integers(1, 1 << 32), min_size=2, max_size=9))
def test_more_bytes_never_take_less(sizes: list[int]) -> None:
    times = [interpolated(TABLE, size) for size in sorted(sizes)]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(times))


def test_noise_does_not_make_a_larger_copy_the_faster_one() -> None:
    assert module._rising([(1, 3.0), (2, 2.0), (4, 2.5)]) == ((1, 2.0), (2, 2.0), (4, 2.5))


def test_warm_times_end_where_the_cache_does() -> None:
    found = known(Somewhere())
    assert found.copy_time_us(4096, warm=True) == 1.0
    assert found.copy_time_us(1 << 24, warm=True) == pytest.approx(8.0)


def test_a_16_bit_type_without_units_of_its_own_computes_in_f32() -> None:
    found = known(Somewhere())
    assert [found.flops_per_s(kind) for kind in ("f32", "bf16", "f16", "f64")] == [1e12, 9e14, 1e12, None]


# --- on disk -----------------------------------------------------------------------------------------------------------


def test_what_is_saved_is_what_is_loaded(cache: Path) -> None:
    device: Any = Somewhere()
    assert load(device) is None
    file = known(device).save()
    assert file.parent == cache / "calibration"
    assert load(device) == known(device)


def test_another_temperature_is_the_same_device(cache: Path) -> None:
    known(Somewhere()).save()
    warmer: Any = Somewhere(celsius=80)
    assert load(warmer) == known(Somewhere())


@pytest.mark.parametrize("changed", [{"driver": "3.2"}, {"name": "another"}, {"compute_units": 1}], ids=str)
def test_another_driver_device_or_number_of_cores_is_not_calibrated(cache: Path, changed: dict[str, Any]) -> None:
    known(Somewhere()).save()
    other: Any = Somewhere(**changed)
    assert load(other) is None


def test_other_kernels_measure_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = Somewhere()
    known(device).save()
    monkeypatch.setattr(module, "KERNELS", cache)
    (cache / "calibration.cl").write_text("// other kernels")
    assert load(device) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 0}', '{"format": 1, "device": {}}'])
def test_a_damaged_file_is_no_calibration(cache: Path, damage: str) -> None:
    device: Any = Somewhere()
    known(device).save().write_text(damage)
    assert load(device) is None


def test_a_file_of_another_device_is_not_believed(cache: Path) -> None:
    device: Any = Somewhere()
    file = known(device).save()
    fields = json.loads(file.read_text())
    file.write_text(json.dumps({**fields, "device": {**fields["device"], "driver": "2"}}))
    assert load(device) is None


# --- the kernels -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", [CUDA, OPENCL], ids=lambda t: t.language)
def test_there_is_a_copy_a_chain_and_an_empty_kernel(template: Template) -> None:
    binding = Binding(template, module._task("cold"))
    whats = {str(binding.fold(start)["WHAT"]) for start in template.starts}
    assert {"COPY", "EMPTY", "FMA_F32"} <= whats == set(map(str, template.parameter("WHAT").values))


def test_flops_are_counted_by_the_template_itself() -> None:
    binding, limits = Binding(CUDA, module._task("cold")), named("sm_90")
    workload = Workload("chains", n=64, steps=1000)
    counted = {}
    for start in CUDA.starts:
        names = binding.names(binding.fold(start), workload=workload, limits=limits)
        counted[str(start["WHAT"])] = (names["flops"], names["blocks"], start["BLOCK"])
    flops, blocks, block = counted["FMA_F32"]
    assert blocks == 132 * 4
    assert flops == 2 * int(blocks) * int(block) * 4 * 1000  # two per fma, four chains
    assert counted["WGMMA_BF16"][0] == 132 * 1000 * 2 * (2 * 64 * 256 * 16)  # two warpgroups, one wgmma each per step
    assert counted["COPY"][0] == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_what_an_architecture_has_compiles_for_it(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from tunesmith.backends.nvrtc import compile_program

    binding, limits = Binding(CUDA, module._task("cold")), named(arch)
    for start in CUDA.starts:
        config = binding.fold(start)
        program = replace(program_of(binding, module._task("cold"), config, Setting(), limits), arch=arch)
        build = compile_program(program, "key")
        lacks = str(config["WHAT"]).startswith("WGMMA") and arch != "sm_90a"
        assert build.status == (FAILED if lacks else BUILT), build.log
        if lacks:
            assert "wgmma needs sm_90a" in build.reason
            continue
        assert build.kernels[0].spill_bytes == 0
        assert "serialized" not in build.log  # what ptxas says of a wgmma whose registers are touched meanwhile


# --- warm --------------------------------------------------------------------------------------------------------------


def test_warm_arguments_are_touched_and_no_more_launches_than_stay_warm() -> None:
    touched = []

    class Session:
        rotation_bytes = 8 * 10_000
        limits = named("sm_90")

        def allocate(self, size: int) -> list[int]:
            return [size]

        def write(self, *args: object) -> None:
            pass

        def touch(self, buffer: object, size: int) -> None:
            touched.append(size)

    def one(name: str, warm: bool) -> Layout:
        return Layout(name, "f32", (250,), (1,), 4096, 9472, reads=True, warm=warm)

    for warm, launches, sizes in ((True, 5, [9472] * 3), (False, None, [])):
        touched.clear()
        rotation = Rotation(Session(), Case("case", {"x": one("x", warm), "y": one("y", False)}, ({},)))
        rotation.touch([0, 1, 2])
        assert touched == sizes
        assert (rotation.stays_warm == launches) if launches else (rotation.stays_warm >= rotation.count)


# --- measured ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    try:
        device = find_device("opencl:0")  # whose runtime may lie in the user's cache
    except MissingError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("TUNESMITH_CACHE", str(tmp_path))
    yield device
    device.close()


@pytest.mark.opencl
def test_a_small_calibration_on_a_cpu(cpu: Device) -> None:
    heard: list[tuple[int, int]] = []
    with Compilers(environment=cpu.environment) as compilers:
        found = calibrate(cpu, compilers, lambda *of: heard.append(of), sizes=(1 << 20, 1 << 22), steps=1024, samples=1)
    assert [size for size, _ in found.copy_us] == [size for size, _ in found.warm_copy_us] == [1 << 20, 1 << 22]
    assert 0 < found.launch_us <= found.copy_us[0][1] <= found.copy_us[1][1]
    assert set(found.peaks) == {"f32"}
    assert found.peaks["f32"].by == "fma"
    assert found.peaks["f32"].flops_per_s > 0
    assert heard == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    assert load(cpu) is None  # it was a short one


@pytest.mark.opencl
def test_a_copy_copies(cpu: Device) -> None:
    task, workload = module._task("cold"), Workload("odd", n=4 * 20_001, steps=0)
    with Compilers(environment=cpu.environment) as compilers:
        meter = module._Meter(cpu, compilers, 1)
    content = module._content(16 * workload.dims["n"])
    case = Case("copy", layouts(task, workload, exact_alignment=True), ({"x": content},))
    cpu.load(case)
    copies = [(config, build) for config, build in meter.built if config["WHAT"] == "COPY"]
    for config, build in copies:
        launches = meter.bindings["cold"].launches(config, workload, cpu.limits)
        answer = cpu.ask(RunCheck("copy", Candidate(build, launches)), 60.0)
        assert answer.fields["problems"] == []
        assert answer.parts[0] == content.tobytes()
    assert len(copies) > 1
