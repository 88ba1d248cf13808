"""Construction of the legal space, against Kernel Tuner and pyATF: the same parameters and constraints, identical counts.

    python3 -m venv /tmp/rivals && /tmp/rivals/bin/pip install 'kernel-tuner==1.5.*' pyatf
    python benchmarks/space.py --rivals-python /tmp/rivals/bin/python --write benchmarks/results/space-DATE.md

Timed is what each tool does from its description of a space to all legal configurations in memory: here a template's
text to `Space.matrix` (and further to a list of tuples), there `Searchspace(...)` and `SearchSpace(...)`. The best of
several repeats, one process per tool, one after the other. The definition is of AutoTuningAssociation/benchmark_hub (MIT).
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DEFINITION = HERE / "definitions" / "hotspot_milo.json"


@dataclass(frozen=True)
class Definition:
    """A space as every tool can be told it."""

    name: str
    parameters: dict[str, list[int]]
    constraints: dict[str, list[str]]  # text: the parameters that it names

    @property
    def cartesian(self) -> int:
        return math.prod(map(len, self.parameters.values()))


def recorded(path: Path) -> Definition:
    """A definition in T1 format; its value lists are Python, of a file of our own."""
    space = json.loads(path.read_text())["ConfigurationSpace"]
    known = {"__builtins__": {}, "range": range, "list": list}
    values = {p["Name"]: list(eval(p["Values"], known)) for p in space["TuningParameters"]}
    return Definition(path.stem, values, {c["Expression"]: c["Parameters"] for c in space["Conditions"]})


def synthetic() -> Definition:
    """A tiled product such as a model writes it: a third of its constraints tie four parameters or more."""
    parameters = {
        "BM": [16, 32, 64, 96, 128, 192, 256], "BN": [16, 32, 64, 96, 128, 192, 256], "BK": [8, 16, 32, 64, 128],
        "WM": [1, 2, 4, 8], "WN": [1, 2, 4, 8], "TM": [1, 2, 4, 8, 16], "TN": [1, 2, 4, 8, 16],
        "VEC": [1, 2, 4, 8], "STAGES": [1, 2, 3, 4, 5, 6], "SPLIT": [1, 2, 3, 4, 8], "SWIZZLE": [0, 1],
    }  # fmt: skip
    texts = [
        "BM % (WM * TM) == 0",
        "BN % (WN * TN) == 0",
        "WM * WN <= 32",
        "64 <= (BM // TM) * (BN // TN) <= 1024",
        "BK % VEC == 0",
        "TM * TN + TM + TN <= 96",
        "STAGES * (BM + BN) * BK * 4 <= 101376",
        "(BM * BK) % ((BM // TM) * (BN // TN) * VEC) == 0 or BK >= 64",
        "SWIZZLE == 0 or BK * VEC >= 64",
        "SPLIT * BK <= 512",
    ]
    return Definition("synthetic", parameters, {t: [n for n in parameters if n in names_of(t)] for t in texts})


def names_of(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def template_of(definition: Definition) -> str:
    """The definition as a template's source."""
    require = "\n".join(f'"{text}" = "{text}"' for text in definition.constraints)
    lines = (f"#define {n} {v[0]} // tune: {', '.join(map(str, v))}" for n, v in definition.parameters.items())
    header = f'entry = "f"\ngrid = ["1"]\nblock = ["1"]\nargs = []\n[require]\n{require}'
    return f"/* tunesmith 1\n{header}\n*/\n" + "\n".join(lines) + "\n"


# --- the tools; each gives seconds, count and a digest of the set of configurations ------------------------------------


def digest(names: list[str], configurations: Any) -> str:
    """Of the set of configurations, whatever their order and that of the parameters."""
    import numpy as np

    table = np.asarray(configurations, np.int64).reshape(-1, len(names))[:, np.argsort(names)]
    return hashlib.sha256(np.ascontiguousarray(table[np.lexsort(table.T)]).tobytes()).hexdigest()[:16]


def timed(construct: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    best, result = math.inf, None
    for _ in range(repeats):
        result = None
        start = time.perf_counter()
        result = construct()
        best = min(best, time.perf_counter() - start)
    return best, result


def run_tunesmith(definition: Definition, repeats: int) -> dict[str, Any]:
    import numpy as np

    from tunesmith.space import Space
    from tunesmith.template import Template

    source = template_of(definition)

    def matrix() -> Space:
        space = Space(Template.parse(source, name=definition.name, language="cuda"))
        _ = space.matrix
        return space

    def tuples() -> list[tuple[int, ...]]:
        space = matrix()
        columns = [np.array(p.values)[space.matrix[:, i]].tolist() for i, p in enumerate(space.parameters)]
        return list(zip(*columns, strict=True))

    seconds, space = timed(matrix, repeats)
    as_tuples, listed = timed(tuples, repeats)
    counting, _ = timed(lambda: Space(space.template).count(), repeats)
    found = digest([p.name for p in space.parameters], listed)
    return {"seconds": seconds, "tuples": as_tuples, "counting": counting, "count": len(space), "digest": found}


def run_kernel_tuner(definition: Definition, repeats: int) -> dict[str, Any]:
    from kernel_tuner.searchspace import Searchspace

    def construct() -> Any:
        return Searchspace(dict(definition.parameters), list(definition.constraints), 10**9)

    seconds, space = timed(construct, repeats)
    return {"seconds": seconds, "count": space.size, "digest": digest(list(space.param_names), space.list)}


def run_pyatf(definition: Definition, repeats: int) -> dict[str, Any]:
    from pyatf.range import Set
    from pyatf.search_space import SearchSpace
    from pyatf.tp import TP

    names = list(definition.parameters)
    last: dict[str, list[str]] = {}
    for text, named in definition.constraints.items():
        last.setdefault(max(named, key=names.index), []).append(text)

    def tp(name: str) -> Any:
        if name not in last:
            return TP(name, Set(*definition.parameters[name]))
        text = " and ".join(f"({t})" for t in last[name])
        asked = [n for n in names if n in names_of(text)]  # itself among them
        return TP(name, Set(*definition.parameters[name]), eval(f"lambda {', '.join(asked)}: {text}"))

    seconds, space = timed(lambda: SearchSpace(*map(tp, names), verbosity=0), repeats)
    return {"seconds": seconds, "count": space.constrained_size, "digest": ""}


TOOLS = {"tunesmith": run_tunesmith, "Kernel Tuner": run_kernel_tuner, "pyATF": run_pyatf}


# --- one process per tool, and the table -------------------------------------------------------------------------------


def elsewhere(python: str, tool: str, definition: Definition, repeats: int) -> dict[str, Any]:
    request = json.dumps({"tool": tool, "definition": asdict(definition), "repeats": repeats})
    command = [python, __file__, "--child"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tool} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def child() -> None:
    request = json.load(sys.stdin)
    print(json.dumps(TOOLS[request["tool"]](Definition(**request["definition"]), request["repeats"])))


def compare(definition: Definition, rivals: str, repeats: int) -> dict[str, dict[str, Any]]:
    found = {"tunesmith": elsewhere(sys.executable, "tunesmith", definition, 5)}
    for tool in ("Kernel Tuner", "pyATF"):
        found[tool] = elsewhere(rivals, tool, definition, repeats if tool == "Kernel Tuner" else 1)
    ours = found["tunesmith"]
    for tool, result in found.items():
        assert result["count"] == ours["count"], f"{tool} counts {result['count']}, tunesmith {ours['count']}"
        assert result["digest"] in ("", ours["digest"]), f"{tool} lists other configurations"
    return found


def table(results: dict[Definition | str, dict[str, dict[str, Any]]], sizes: dict[str, int]) -> str:
    lines = ["| space | combinations | legal | tool | seconds | tunesmith is faster by |", "|---|---|---|---|---|---|"]
    for name, found in results.items():
        ours = found["tunesmith"]
        head = f"| {name} | {sizes[str(name)]:,} | {ours['count']:,} |"
        lines.append(f"{head} tunesmith, counted only | {ours['counting']:.4f} | – |")
        lines.append(f"{head} tunesmith, matrix | {ours['seconds']:.4f} | – |")
        lines.append(f"{head} tunesmith, as a list of tuples | {ours['tuples']:.4f} | – |")
        for tool in ("Kernel Tuner", "pyATF"):
            seconds = found[tool]["seconds"]
            factors = f"{seconds / ours['seconds']:.0f}x ({seconds / ours['tuples']:.0f}x as tuples)"
            lines.append(f"{head} {tool} | {seconds:.3f} | {factors} |")
    return "\n".join(lines)


def machine() -> str:
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())  # fmt: skip
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the start"


def main() -> None:
    parser = argparse.ArgumentParser(description="Construct legal spaces with three tools; identical counts asserted.")
    parser.add_argument("--rivals-python", metavar="PATH", help="a Python that has kernel-tuner and pyatf")
    parser.add_argument("--definition", type=Path, default=DEFINITION, help="a recorded definition in T1 format")
    parser.add_argument("--repeats", type=int, default=3, help="of Kernel Tuner; pyATF runs once")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the results there, too")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child()
    if not given.rivals_python:
        parser.error("--rivals-python is needed: the tools to compare with live in an environment of their own")
    definitions = [recorded(given.definition), synthetic()]
    where = machine()
    results: dict[Any, Any] = {d.name: compare(d, given.rivals_python, given.repeats) for d in definitions}
    listed = table(results, {d.name: d.cartesian for d in definitions})
    print(listed)
    if given.write:
        command = "python benchmarks/space.py --rivals-python RIVALS"
        head = f"# Construction of the legal space\n\n{datetime.date.today()}, {where}.\n`{command}`\n"
        given.write.write_text(f"{head}{(__doc__ or '').split(chr(10) * 2)[2]}\n\n{listed}\n")
    return None


if __name__ == "__main__":
    main()
