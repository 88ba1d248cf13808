"""Kernel Tuner's strategies on the same spaces, through its own simulation mode, in an environment of their own.

A space is written as a cache file as Kernel Tuner 1.5 reads them: all legal configurations, the time (of several
workloads the inverse of the score), and where it failed the name of a failure. Nothing of its own is overridden; what is
recorded is each configuration when it is evaluated for the first time, which is how it counts its budget too.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RIVALS = ("simulated_annealing", "genetic_algorithm")
FAILED = "RuntimeFailedConfig"


def rival_curves(found: Any, strategy: str, python: str, budget: int, repeats: int) -> Any:
    """What a strategy of Kernel Tuner reaches on a `Problem`: a row per repeat."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache.json"
        path.write_text(json.dumps(cache_file(found)))
        request = {"cache": str(path), "strategy": strategy, "budget": budget, "repeats": repeats}
        done = subprocess.run(
            [python, __file__], input=json.dumps(request), capture_output=True, text=True, check=False
        )
    if done.returncode:
        sys.exit(f"Kernel Tuner {strategy} on {found.name} failed:\n{done.stderr[-2000:]}")
    rows = []
    for times in json.loads(done.stdout.splitlines()[-1]):
        scores = [1000.0 / t / found.optimum if t else 0.0 for t in times[:budget]]
        scores += [0.0] * (budget - len(scores))
        rows.append(np.maximum.accumulate(scores))
    return np.array(rows)


def cache_file(found: Any) -> dict[str, Any]:
    names = [p.name for p in found.space.parameters]
    cache = {}
    for config in found.space:
        trial = found.evaluate(config, 0)
        key = ",".join(str(config[name]) for name in names)
        cache[key] = {**config, "time": 1000.0 / trial.score if trial.score else FAILED, "compile_time": 0,
                      "verification_time": 0, "benchmark_time": 0}  # fmt: skip
    return {
        "device_name": "simulated", "kernel_name": "kernel", "problem_size": [1, 1, 1], "tune_params_keys": names,
        "tune_params": {p.name: list(p.values) for p in found.space.parameters}, "objective": "time", "cache": cache,
    }  # fmt: skip


# --- inside the rival's environment ------------------------------------------------------------------------------------


def child() -> None:
    import random

    import numpy as np
    from kernel_tuner import util
    from kernel_tuner.interface import tune_cache

    request = json.load(sys.stdin)
    runs: list[list[float | None]] = []

    def first_visit(tune_params: Any, result: Any, *others: Any, **more: Any) -> None:
        time = result.get("time")
        runs[-1].append(time if isinstance(time, float | int) else None)

    util.print_config_output = first_visit
    for seed in range(request["repeats"]):
        random.seed(seed)
        np.random.seed(seed)
        runs.append([])
        options = {"max_fevals": request["budget"]}
        with contextlib.redirect_stdout(io.StringIO()):
            tune_cache(request["cache"], strategy=request["strategy"], strategy_options=options, quiet=True)
    print(json.dumps(runs))


if __name__ == "__main__":
    child()
