"""Every file of the suite, and every file that models wrote: it compiles as it stands, untouched; on a CPU it is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tunesmith.backends import nvrtc
from tunesmith.binding import Binding
from tunesmith.build import BUILT, Program
from tunesmith.compiling import Compilers
from tunesmith.device import Device, find_device
from tunesmith.evaluate import Evaluator
from tunesmith.task import Task
from tunesmith.template import Template
from tunesmith.trial import Status

ROOT = Path(__file__).resolve().parent.parent
TASKS = sorted(path.parent for path in (ROOT / "suite").glob("*/task.py"))
CUDA = sorted([*(ROOT / "suite").rglob("*.cu"), *(ROOT / "tests" / "answers").rglob("*.cu")])
OPENCL = sorted(ROOT.glob("suite/*/*/*.cl"))


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def compilers() -> Iterator[Compilers]:
    with Compilers(processes=2) as found:
        yield found


def test_every_cuda_file_compiles_as_it_stands(compilers: Compilers) -> None:
    programs = []
    for path in CUDA:
        template = Template.load(path)
        assert template.render() == path.read_text()
        entries = tuple(dict.fromkeys(launch.entry for launch in template.launches))
        programs.append((Program("cuda", path.read_text(), entries, "sm_90a", ("-std=c++17",)), nvrtc.version()))
    for path, build in zip(CUDA, compilers.build_all(programs), strict=True):
        assert build.status == BUILT, f"{short(path)}: {build.reason}"


@pytest.mark.parametrize("folder", TASKS, ids=lambda path: path.name)
def test_every_file_binds_and_its_default_is_legal_somewhere(folder: Path) -> None:
    task = Task.load(folder)
    for path in (*folder.rglob("*.cu"), *folder.rglob("*.cl")):
        binding = Binding(Template.load(path), task)
        reasons = [binding.why_illegal(binding.template.default, w) for w in (*task.workloads, *task.held_out)]
        assert None in reasons, f"{short(path)}: {reasons[0]}"


@pytest.fixture(scope="module")
def cpu() -> Iterator[Device]:
    device = find_device("opencl:0")
    yield device
    device.close()


@pytest.mark.opencl
@pytest.mark.parametrize("folder", [t for t in TASKS if list(t.rglob("*.cl"))], ids=lambda path: path.name)
def test_every_opencl_file_is_right_at_its_default(folder: Path, cpu: Device) -> None:
    task = Task.load(folder)
    with Compilers(processes=2, environment=cpu.environment) as compilers:
        evaluator = Evaluator(task, cpu, compilers, seed=5)
        workloads = evaluator.workloads()
        assert workloads, "no workload for a CPU"
        for path in sorted(folder.rglob("*.cl")):
            binding = Binding(Template.load(path), task)
            trial = evaluator.evaluate(0, binding, binding.template.default, workloads, timed=False)
            assert trial.status in (Status.OK, Status.DUPLICATE), f"{short(path)}: {trial.reason}"
