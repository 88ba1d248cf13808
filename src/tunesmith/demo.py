"""`make demo`: one real kernel tuned on the machine at hand, from the kernel to a proven result, in about two minutes.

On a GPU the top-k softmax of a mixture-of-experts router; on a CPU, through OpenCL, a row softmax. The templates were
written by a language model; checks, search, timing and the proof are done live, by what `tunesmith search` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tunesmith import runs
from tunesmith.campaign import Order
from tunesmith.cli import reported
from tunesmith.device import find_device
from tunesmith.errors import UsageError
from tunesmith.front import say

KERNELS = {"cuda": ("topk_softmax", "expose_1.cu"), "opencl": ("row_softmax", "onepass.cl")}
BUDGET = "60s"


def demo(suite: Path) -> None:
    """Tune one kernel against its naive form and show what came of it."""
    device = find_device()
    device.close()
    name, file = KERNELS[device.language]
    if not (suite / name / "task.py").is_file():
        raise UsageError(f"no task in {suite / name}", hint="run it from the repository's folder")
    order = Order(
        suite / name, [suite / name / "templates" / file], device=device.name, baseline="naive", budget=(BUDGET,)
    )
    runs.show_result(runs.search(order, quiet=False))
    say("target    the time of a copy that moves the same bytes, or of the same flops at the measured peak")
    say("belief    outputs judged against a float64 oracle on every workload and distribution; both kernels in turn on")
    say("          the same buffers, caches cold, in fresh processes; intervals over processes")


def main() -> None:
    with reported(False):
        demo(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("suite"))


if __name__ == "__main__":
    main()
