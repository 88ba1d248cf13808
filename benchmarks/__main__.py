"""`make bench`: the benchmarks that need nothing but this machine. Each file says how it is run in full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RUNS = (
    ("space.py",),
    ("answers.py", "--configs", "10"),
    ("aa.py", "--processes", "20"),
)


def main() -> None:
    for name, *arguments in RUNS:
        print(f"== {name} {' '.join(arguments)}", flush=True)
        subprocess.run([sys.executable, str(HERE / name), *arguments], check=False)


main()
