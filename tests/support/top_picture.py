"""The picture of docs/how-to/top.md, of made-up runs.

`PYTHONPATH=tests python -m support.top_picture FILE.svg` makes it.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import tempfile
import time
from pathlib import Path

from support.written_runs import write_run

SIZE = (100, 34)
SPEEDS = (0.8, 1.6, 3.0, 4.5)


def make_runs(root: Path) -> None:
    """Four learning rates, two of them still running."""
    noise = random.Random(7)
    for number, speed in enumerate(SPEEDS):
        state = "running" if number > 1 else "finished"
        lr = 0.0003 * (number + 1)
        index = write_run(
            root, number=number, table="hopper", info=f"&lr={lr:g}&seed=1", state=state, updated=time.time()
        )
        lines = [
            f"{step * 2500},{480 * (1 - math.exp(-speed * step / 100)) + noise.gauss(0, 12):.4f}"
            for step in range(100 - 20 * (number > 1))
        ]
        path = root / "log" / "hopper" / index / "progress.csv"
        path.write_text("time-step,perf/return\n" + "\n".join(lines) + "\n")


async def take(root: Path, target: Path) -> None:
    """Mark the runs, and save the screen."""
    from rla_client.database.database import Database
    from rla_client.top.app import TopApp
    from rla_client.top.runs_on_screen import RunsOnScreen

    database = Database(root)
    app = TopApp(RunsOnScreen(root, lambda where: database.records(where=where)))
    async with app.run_test(size=SIZE) as pilot:
        while "perf/return" not in str(app.query_one("#curves-body").render()):
            await pilot.pause(0.05)
        await pilot.press("space", "down", "space", "down", "space", "down", "space")
        while "d hopper" not in str(app.query_one("#curves-body").render()):
            await pilot.pause(0.05)
        app.save_screenshot(str(target))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rla-top-") as folder:
        root = Path(folder, "data")
        root.mkdir()
        make_runs(root)
        asyncio.run(take(root, Path(sys.argv[1])))


if __name__ == "__main__":
    main()
