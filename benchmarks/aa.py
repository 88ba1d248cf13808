"""How often identical kernels are told apart: eight identical arms in many fresh processes, play-offs drawn from them.

    python benchmarks/aa.py --device cuda:0 [--processes 60] [--json FILE]

Each process times the same candidate as eight arms, in permuted order, on shared buffers, for two cells. Play-offs of seven
processes are then drawn by resampling: two arms, roles by lot, Holm over the cells, minimum effect 1 %, as the product
claims wins. The same draws with 3 % planted show how often such a win is found.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from pathlib import Path
from typing import Any

from tunesmith.binding import Binding
from tunesmith.compiling import Compilers
from tunesmith.device import Device, find_device
from tunesmith.evaluate import CONTENTS, Evaluator
from tunesmith.messages import Candidate, Forget, RunTime
from tunesmith.playoff import PROCESSES, claims, round_ratio
from tunesmith.process import Died
from tunesmith.task import Task
from tunesmith.template import Template
from tunesmith.timing import ratio_over_processes

ROOT = Path(__file__).resolve().parent.parent
ARMS = 8
DRAWS = 4000
ROUNDS = {"gpu": 14, "cpu": 14}
CELLS = {
    "cuda": (
        ("topk_softmax", "templates/expose_1.cu", "decode-16"),
        ("silu_and_mul", "baselines/served.cu", "decode-16"),
    ),
    "opencl": (
        ("row_softmax", "templates/onepass.cl", "cpu-scores-8"),
        ("silu_and_mul", "templates/vector.cl", "cpu-decode-16"),
    ),
}


def cell(device: Device, compilers: Compilers, name: str, file: str, workload_name: str) -> tuple[Any, Candidate]:
    task = Task.load(ROOT / "suite" / name)
    evaluator = Evaluator(task, device, compilers)
    binding = Binding(Template.load(ROOT / "suite" / name / file), task)
    workload = next(w for w in task.workloads if w.name == workload_name)
    prepared = evaluator.prepare(0, binding, binding.template.default, [workload])
    candidates = evaluator.candidates(prepared, evaluator.builds(prepared))  # type: ignore[arg-type]
    case = evaluator.checker.case(workload, exact_alignment=False, contents=CONTENTS)
    return case, candidates[workload_name]  # type: ignore[index]


def one_process(device: Device, cells: list[tuple[Any, Candidate]], lots: random.Random) -> list[list[list[float]]]:
    """Per cell and arm its samples, one per round."""
    found = []
    with device.fresh_process() as child:
        child.ask(device.open_message(), 120)
        for case, candidate in cells:
            child.ask(case, 120)
            order: list[int] = []
            for _ in range(ROUNDS[device.kind]):
                order += lots.sample(range(ARMS), ARMS)
            answer = child.ask(RunTime(case.key, (candidate,) * ARMS, tuple(order)), 300).fields
            if "samples_us" not in answer:
                raise Died(str(answer))
            child.ask(Forget(case.key), 60)
            found.append(answer["samples_us"])
    return found


def resample(processes: list[list[list[list[float]]]], *, planted: float, draws: int, seed: int) -> tuple[float, float]:
    """The share of play-offs that claim a win in a cell where nothing was planted, and the share of planted ones found."""
    lots = random.Random(seed)
    cells = len(processes[0])
    false = found = 0
    for _ in range(draws):
        chosen = [lots.choice(processes) for _ in range(PROCESSES)]
        ratios = {}
        for index in range(cells):
            a, b = lots.sample(range(ARMS), 2)
            extra = math.log1p(planted) if index == 0 else 0.0
            ratios[str(index)] = ratio_over_processes(
                [math.log(round_ratio(p[index][a], p[index][b], 1)) + extra for p in chosen]
            )
        won = claims(ratios, {name: ([1.0], [1.0]) for name in ratios})
        found += won["0"].won
        false += any(won[str(i)].won for i in range(1 if planted else 0, cells))
    return false / draws, found / draws


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=None)
    parser.add_argument("--processes", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop making processes after this long")
    parser.add_argument("--json")
    parser.add_argument("--from", dest="kept", help="draw again from a file that --json wrote, without a device")
    options = parser.parse_args()
    if options.kept:
        held = json.loads(Path(options.kept).read_text())
        language = "cuda" if held["device"].startswith("cuda") else "opencl"
        one = [[[arm if isinstance(arm, list) else [arm] for arm in cell] for cell in p] for p in held["times_us"]]
        return tell(held["device"], language, one, held.get("seconds", 0), options.json)
    device = find_device(options.device)
    lots = random.Random(1)
    kept: list[list[list[list[float]]]] = []
    started = time.monotonic()
    with Compilers(environment=device.environment) as compilers:
        cells = [cell(device, compilers, *names) for names in CELLS[device.language]]
        while len(kept) < options.processes and time.monotonic() - started < options.seconds:
            try:
                kept.append(one_process(device, cells, lots))
                if len(kept) % 10 == 0:
                    print(f"{len(kept)} processes, {time.monotonic() - started:.0f} s", flush=True)
            except Died as died:
                print(f"a process died: {died}")
    device.close()
    if options.json:
        Path(options.json).write_text(json.dumps({"device": device.name, "times_us": kept}))
    return tell(device.name, device.language, kept, round(time.monotonic() - started), options.json)


def tell(name: str, language: str, kept: list[list[list[list[float]]]], seconds: int, path: str | None) -> None:
    """Draw play-offs from what was timed, and print and keep what came of them."""
    false, _ = resample(kept, planted=0.0, draws=DRAWS, seed=2)
    beside, found = resample(kept, planted=0.03, draws=DRAWS, seed=3)
    report: dict[str, Any] = {
        "device": name, "processes": len(kept), "seconds": seconds, "draws": DRAWS, "false_wins": false,
        "false_wins_beside_a_planted_one": beside, "planted_3_percent_found": found,
    }  # fmt: skip
    for index, names in enumerate(CELLS[language]):
        within = [max(abs(math.log(round_ratio(p[index][0], other, 1))) for other in p[index][1:]) for p in kept]
        between = [statistics.median([us for arm in p[index] for us in arm]) for p in kept]
        report[" ".join(names)] = {
            "median_us": statistics.median(between),
            "arms apart in a process, median and worst": [
                statistics.median(within),
                max(within),
            ],
            "processes apart, (max - min) / median": (max(between) - min(between)) / statistics.median(between),
        }
    print(json.dumps(report, indent=1))
    if path:
        Path(path).write_text(json.dumps({**report, "times_us": kept}))


if __name__ == "__main__":
    main()
