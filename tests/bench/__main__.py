"""`python -m tests.bench [NAME…]`: all benchmarks, or those named (`hot_path`, `ingest`, …), one by one.

Each is a script of its own beside this file and runs in its own process. They print ratios beside
their goals and never fail on time; a benchmark that breaks is reported, and the exit code is 1.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent


def main(wanted: list[str]) -> int:
    """Run the benchmarks; the number of broken ones decides the exit code."""
    known = {path.stem.removeprefix("bench_"): path for path in sorted(FOLDER.glob("bench_*.py"))}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    broken = []
    for name in wanted or known:
        print(f"\n== {name}", flush=True)
        began = time.perf_counter()
        done = subprocess.run([sys.executable, str(known[name])], cwd=FOLDER.parents[1], check=False)
        print(f"-- {name}: {time.perf_counter() - began:.0f} s", flush=True)
        if done.returncode:
            broken.append(name)
    if broken:
        print(f"\nbroken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
