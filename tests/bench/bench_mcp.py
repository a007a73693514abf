"""Answers of `rla mcp` over many runs, asked by the official client over stdin and stdout.

    python tests/bench/bench_mcp.py [--runs 10000] [--rows 20]

"Best lr over seeds, with interval" is one call, `compare`; the goal is 0.5 s. The first call of a server that
was just started stands beside the next ones; the CPU seconds are those of the server.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_database import rla
from bench_lake import make_runs

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("compare", {"by": ["lr"]}),
    ("compare", {"by": ["lr"]}),
    ("overview", {}),
    ("runs", {}),
    ("runs", {"where": "lr == 0.01 and `return` > 1"}),
    ("run", {}),
    ("curves", {"by": ["lr"], "where": "seed == 1"}),
]
GOAL_S = {"compare": 0.5}


async def talk(root: Path, state: Path) -> None:
    import psutil
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.types import TextContent

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "rla_client.cli.app", "mcp", "-d", str(root)],
        env={"RLA_STATE_DIR": str(state), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    began = time.perf_counter()
    async with Client(stdio_client(server)) as client:
        print(f"connected after {time.perf_counter() - began:.2f} s")
        (process,) = psutil.Process().children()
        for name, given in CALLS:
            before, began = sum(process.cpu_times()[:2]), time.perf_counter()
            answer = await client.call_tool(name, given)
            took, cpu = time.perf_counter() - began, sum(process.cpu_times()[:2]) - before
            (part,) = answer.content
            assert isinstance(part, TextContent)
            text = part.text
            assert not answer.is_error, text
            goal = f"  (goal {GOAL_S[name]} s)" if name in GOAL_S else ""
            print(f"{name:9} {took:6.2f} s, {cpu:.2f} s CPU, {len(text)} characters  {given or ''}{goal}")


def main() -> None:
    import anyio

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=20)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rla-bench-") as folder:
        root, state = Path(folder, "data"), Path(folder, "state")
        make_runs(root, chosen.runs, chosen.rows)
        rla(root, state, "ls")  # what was read once is known
        anyio.run(talk, root, state)


if __name__ == "__main__":
    main()
