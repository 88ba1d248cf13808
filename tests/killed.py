"""Searches that are killed at random moments and gone on with, each in a forked process; prints what came of them.

    python tests/killed.py FOLDER TIMES SEED

A script of its own, for a process that forks had better have no threads.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tunesmith import runs
from tunesmith.campaign import Order
from tunesmith.journal import is_begun
from tunesmith.result import Result
from tunesmith.run import Run

RECORDING = Path(__file__).parents[1] / "benchmarks" / "recorded" / "pnpoly_3090.json.gz"
TRIALS = 120


def order(folder: Path) -> Order:
    return Order(None, device=f"recorded:{RECORDING}", strategy="evolution", budget=(f"{TRIALS}trials",), run=folder)


def forked(work: Any, kill_after_s: float | None = None) -> bool:
    """Run in a forked process; whether it lived to the end."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 a forked process must not return into the test
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a search ended with an error")
    return os.WIFEXITED(status)


def outcome(folder: Path) -> dict[str, Any]:
    answer = Result(Run.read(folder)).as_json()
    return {key: value for key, value in answer.items() if key not in ("run", "seconds")}


def main(folder: Path, times: int, seed: int) -> None:
    lots = random.Random(seed)
    whole = folder / "whole"
    started = time.monotonic()
    forked(lambda: runs.search(order(whole), quiet=True))
    took = time.monotonic() - started
    killed = []
    for index in range(times):
        one = folder / f"killed-{index}"
        kills = 0
        if not forked(lambda one=one: runs.search(order(one), quiet=True), lots.uniform(0.0, took)):
            kills += 1
            while is_begun(one) and lots.random() < 0.5:  # and sometimes again
                kills += not forked(lambda one=one: begun_again(one), lots.uniform(0.0, took))
        forked(lambda one=one: begun_again(one))
        killed.append({"kills": kills, "same": outcome(one) == outcome(whole)})
    print(json.dumps({"whole": outcome(whole), "killed": killed}))


def begun_again(folder: Path) -> None:
    """Resume; a run that was killed before its first event is started."""
    if is_begun(folder):
        runs.resume(folder, quiet=True)
    else:
        runs.search(order(folder), quiet=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
