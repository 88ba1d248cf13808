"""Modules import downwards only, and importing the package stays light."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tunesmith

PACKAGE = Path(tunesmith.__file__).parent  # type: ignore[arg-type]

# Lowest first. A module imports only from those before it; a new module takes its place in this list.
LAYERS = """
errors grammar expression dtype limits array values tolerance
header template argument loading task naming launch launching binding
column columns program diagram solutions rules settings space
build safety jail process gates data judge messages
backends.cubin backends.nvrtc backends.session backends.null backends.nvml backends.cuda backends.opencl_runtime backends.opencl
backends.host backends
compiling device trial timing calibrate target recorded oracle checker mutants rotation worker
evaluate playoff finals pipeline review
search findings plan models refactor
budget choice journal run arena sharing result loops campaign prove watch handover report front runs cli __main__ demo
""".split()  # noqa: SIM905

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> int:
    """The module's own place, or that of the package around it."""
    while module:
        if module in LAYERS:
            return LAYERS.index(module)
        module = module.rpartition(".")[0]
    raise LookupError("not in LAYERS: say where it stands")


def imported_by(file: Path) -> set[str]:
    """The modules of the package that a file imports, inside functions too."""
    here = ["tunesmith", *name_of(file).split(".")]
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: -node.level]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                inner = PACKAGE.joinpath(*f"{module}.{alias.name}".split(".")[1:])
                is_module = inner.with_suffix(".py").is_file() or inner.is_dir()
                found.add(f"{module}.{alias.name}" if is_module else module)
    return {name.removeprefix("tunesmith.") for name in found if name.startswith("tunesmith.")}


@pytest.mark.parametrize("file", [f for f in MODULES if name_of(f)], ids=name_of)
def test_a_module_imports_only_from_lower_layers(file: Path) -> None:
    name = name_of(file)
    own = layer_of(name)
    for imported in imported_by(file) - {name}:  # files of one package may share its layer
        assert layer_of(imported) <= own, f"{name} imports {imported}, which stands above it"


def test_a_module_without_a_place_is_noticed() -> None:
    assert layer_of("search.annealing") == LAYERS.index("search")
    with pytest.raises(LookupError, match="say where it stands"):
        layer_of("utils")


def test_the_layers_name_each_module_once() -> None:
    assert len(LAYERS) == len(set(LAYERS))


def test_imports_are_seen_wherever_they_stand(tmp_path: Path) -> None:
    file = PACKAGE / "sample.py"  # never written: only its place matters
    (tmp_path / "sample.py").write_text(
        "import tunesmith.binding\nfrom tunesmith import jail\ndef f():\n    from tunesmith.task import Task\n"
        "    from .backends import nvrtc\n    import numpy\n"
    )
    source = (tmp_path / "sample.py").read_text()

    class Sample(type(file)):  # type: ignore[misc]
        def read_text(self, *args: object, **options: object) -> str:
            return source

    assert imported_by(Sample(file)) == {"binding", "jail", "task", "backends.nvrtc"}


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_stays_light() -> None:
    heavy = {"pyopencl", "cuda", "torch", "rich", "cupy", "pydantic", "pytest", "hypothesis"}
    assert not heavy & modules_after("import tunesmith")
    assert not {m for m in modules_after("import tunesmith") if m.startswith("tunesmith.") or m == "numpy"}
    assert "rich" in modules_after("import rich")  # the probe sees what there is


def test_types_load_without_a_backend() -> None:
    everything = "import tunesmith.binding, tunesmith.build, tunesmith.trial, tunesmith.safety, tunesmith.process"
    loaded = modules_after(everything)
    assert "tunesmith.binding" in loaded
    assert not {"pyopencl", "cuda", "torch", "rich"} & loaded
