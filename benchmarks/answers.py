"""Every kernel and template that models wrote, through the gates: the default, and random legal configurations.

    python benchmarks/answers.py --device cuda:0 [--configs 20] [--json FILE]

Prints, per file, how many configurations passed, the factor of its default over the base on the two workloads of the
record, and the recorded factor beside it.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from tunesmith.binding import Binding
from tunesmith.compiling import Compilers
from tunesmith.device import find_device
from tunesmith.evaluate import Evaluator
from tunesmith.pipeline import Pipeline
from tunesmith.space import Space
from tunesmith.task import Task, Workload
from tunesmith.template import Template
from tunesmith.trial import Status, Trial

ROOT = Path(__file__).resolve().parent.parent
ANSWERS = ROOT / "tests" / "answers"
RECORDED = {  # factor over base, as recorded with the answers; CPU: two threads
    "silu_and_mul/rewrite_1": 1.41, "silu_and_mul/template_2": 1.41, "topk_softmax/rewrite_3": 8.18,
    "topk_softmax/expose_1": 8.21, "gemm_bf16/rewrite_1": 8.96, "gemm_bf16/expose_1": 8.95, "gemm_bf16/template_1": 4.79,
    "row_softmax/rewrite_1": 54.0, "row_softmax/template_1": 57.0, "matmul/rewrite_1": 68.0, "matmul/template_1": 68.0,
}  # fmt: skip
SETTINGS = {
    "silu_and_mul": ({"d": 14336}, ("decode-16", "prefill-4096")),
    "topk_softmax": ({"E": 256, "k": 8}, ("decode-16", "prefill-4096")),
    "gemm_bf16": ({"N": 4096, "K": 4096}, ("decode-64", "prefill-4096")),
    "row_softmax": ({"V": 4096}, ("cpu-scores-8", "cpu-scores-256")),
    "matmul": ({"N": 768, "K": 768}, ("cpu-50", "cpu-768")),
}


def run(evaluator: Evaluator, folder: Path, configs: int) -> list[dict[str, Any]]:
    fixed, names = SETTINGS[folder.name]
    workloads = [w for w in evaluator.task.workloads if w.name in names]
    suffix = ".cu" if evaluator.device.language == "cuda" else ".cl"
    files = sorted(folder.glob(f"*{suffix}"), key=lambda path: (path.stem != "base", path.stem))
    rows = []
    for path in files:
        binding = Binding(Template.load(path, fixed=fixed), evaluator.task)
        trials = trial_all(evaluator, binding, workloads, configs)
        default = trials[0]
        times = {w: cell.timing.time_us for w, cell in default.cells.items() if cell.timing}
        if path.stem == "base":
            evaluator.baseline_us = times
        failed = [t for t in trials if t.status not in (Status.OK, Status.DUPLICATE, Status.OVER_LIMITS)]
        factor = (
            math.exp(sum(math.log(evaluator.baseline_us[w] / t) for w, t in times.items()) / len(times))
            if times
            else None
        )
        rows.append({
            "file": f"{folder.name}/{path.stem}", "default": str(default.status), "passed": len(trials) - len(failed),
            "of": len(trials), "factor": factor, "recorded": RECORDED.get(f"{folder.name}/{path.stem}"), "times_us": times,
            "failures": [f"{t.status}: {t.reason[:200]} {dict(t.config)}" for t in failed][:5],
        })  # fmt: skip
    return rows


def trial_all(evaluator: Evaluator, binding: Binding, workloads: list[Workload], configs: int) -> list[Trial]:
    """The default alone (nothing compiles beside it), then random ones through the pipeline."""
    default = evaluator.evaluate(0, binding, binding.template.default, workloads)
    if not binding.template.parameters:
        return [default]
    space = Space(binding.template, evaluator.task, settings=evaluator.task.settings(workloads))
    sampled = space.sample(configs, np.random.default_rng(0))
    pipeline = Pipeline(evaluator, workloads)
    trials = [default, *pipeline.through((number, binding, config) for number, config in enumerate(sampled, 1))]
    pipeline.close()
    return trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=None)
    parser.add_argument("--configs", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json")
    options = parser.parse_args()
    device = find_device(options.device)
    rows = []
    suffix = ".cu" if device.language == "cuda" else ".cl"
    with Compilers(environment=device.environment) as compilers:
        for folder in sorted(ANSWERS.iterdir()):
            if (
                folder.is_dir()
                and list(folder.glob(f"*{suffix}"))
                and (not options.only or folder.name in options.only)
            ):
                evaluator = Evaluator(Task.load(ROOT / "suite" / folder.name), device, compilers)
                for row in run(evaluator, folder, options.configs):
                    rows.append(row)
                    off = f"{row['factor'] / row['recorded'] - 1:+.1%}" if row["factor"] and row["recorded"] else ""
                    factor = f"{row['factor']:.2f}" if row["factor"] else "–"
                    print(f"{row['file']:28} {row['passed']:3} of {row['of']:3}  default {row['default']:8} {factor:>7} "
                          f"recorded {row['recorded'] or '–'!s:>6} {off:>7}  {row['failures']}", flush=True)  # fmt: skip
    device.close()
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
