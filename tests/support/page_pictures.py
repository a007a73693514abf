"""The pictures of the page in docs/how-to/web.

`PYTHONPATH=tests python -m support.page_pictures FOLDER` makes them anew.

The runs are made up: 4 learning rates, 5 seeds each, as an agent writes them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import numpy as np

from support.page_lab import PageServer, chromium
from support.waiting import DEADLINE_S, TIME_FACTOR
from support.written_runs import write_run

if TYPE_CHECKING:
    from playwright.sync_api import ViewportSize

RATES = (0.0003, 0.001, 0.003, 0.01)
SEEDS = 5
SIZE: ViewportSize = {"width": 1280, "height": 760}
SOURCE = (
    "import torch\n\n\ndef train(policy, lr):\n    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)\n"
)


def make_runs(root: Path) -> str:
    """Write the runs; returns the index of the last one."""
    random = np.random.default_rng(7)
    steps = np.arange(400) * 2500
    index = ""
    for number in range(len(RATES) * SEEDS):
        lr, seed = RATES[number // SEEDS], number % SEEDS
        speed, end = 1.2 + 900 * lr / (1 + (lr / 0.003) ** 2), 480 - 4e4 * abs(lr - 0.002)
        learnt = end * (1 - np.exp(-speed * steps / 1e6)) + random.normal(0, 14)
        columns = {
            "time-step": steps,
            "timestamp": 1795252200.0 + number * 60 + steps / 900,
            "perf/return": learnt + random.normal(0, 18, 400),
            "perf/length": learnt / 2 + 40 + random.normal(0, 6, 400),
            "loss/value": 30 * np.exp(-steps / 3e5) + random.gamma(2, 0.4, 400),
            "loss/policy": -0.02 + random.normal(0, 0.006, 400),
        }
        index = write_run(
            root,
            number=number,
            table="hopper",
            info=f"&lr={lr}&seed={seed}",
            params={
                "lr": lr,
                "seed": seed,
                "env": "Hopper-v5",
                "gamma": 0.99,
                "net": {"width": 64, "depth": 2},
            },
        )
        folder = root / "log" / "hopper" / index
        rows = np.array(list(columns.values())).T
        np.savetxt(folder / "progress.csv", rows, "%.6g", ",", header=",".join(columns), comments="")
        run = json.loads((folder / "run.json").read_text())
        run |= {"host": f"gpu{number % 3 + 1}", "time_step": int(steps[-1]), "rows": 400, "user": "ada"}
        run["versions"] = {"python": "3.12.7", "torch": "2.10.0", "gymnasium": "1.2.0"}
        (folder / "run.json").write_text(json.dumps(run))
        (root / "code" / "hopper" / index / "train.py").write_text(SOURCE)
        if seed == SEEDS - 1:
            draw_values(root / "results" / "hopper" / index, lr)
    return index


def draw_values(results: Path, lr: float) -> None:
    """Write what a run drew: a value function over two numbers of the state, at three time-steps."""
    from matplotlib.figure import Figure

    (results / "5-figure.png").unlink()  # no picture, though it is called one
    angle, speed = np.meshgrid(np.linspace(-3, 3, 80), np.linspace(-8, 8, 80))
    for part, step in enumerate((0, 500_000, 997_500)):
        learnt = 1 - np.exp(-part * (0.3 + 200 * lr))
        figure = Figure(figsize=(2.8, 2.2), layout="constrained")
        axes = figure.subplots()
        values = learnt * np.exp(-((angle + 0.25 * speed) ** 2)) + 0.15 * np.cos(angle * (1 + part))
        axes.pcolormesh(angle, speed, values, vmin=-0.2, vmax=1.1)
        axes.set(xlabel="angle", ylabel="speed")
        figure.savefig(results / f"{step}-value.png", dpi=80)


def take(folder: Path) -> list[Path]:
    """Make the pictures; their paths."""
    with tempfile.TemporaryDirectory(prefix="rla-pictures-") as place:
        root = Path(place, "data")
        root.mkdir()
        os.environ.setdefault("RLA_STATE_DIR", f"{place}/state")
        index = make_runs(root)
        server = PageServer((root,), Path(place, "web"))
        try:
            with chromium() as browser:
                page = browser.new_page(viewport=SIZE)
                page.set_default_timeout(DEADLINE_S * TIME_FACTOR * 1000)
                page.goto(f"{server.url}#/runs?group=lr&smooth=4")
                page.wait_for_function("() => Number(document.documentElement.dataset.painted) >= 4")
                page.screenshot(path=folder / "runs.png")
                page.goto(f"{server.url}#/runs?tab=parameters")
                page.wait_for_function(
                    "() => [...document.querySelectorAll('section.panel')].every((one) => one.chart)"
                    " && document.querySelectorAll('section.panel').length > 2"
                )
                page.locator(".spark").first.wait_for()
                page.screenshot(path=folder / "parameters.png")
                parts = [quote(part, safe="") for part in index.split("/")]
                page.goto(f"{server.url}#/run/0/hopper/{'/'.join(parts)}")
                page.get_by_text("Last values").wait_for()
                page.get_by_text("reading…").first.wait_for(state="hidden")
                page.wait_for_function(
                    "() => [...document.querySelectorAll('section.panel')].every((one) => one.chart)"
                )
                page.screenshot(path=folder / "run.png")
                found = [path.parent for path in sorted((root / "results").rglob("0-value.png"))]
                names = [f"0/{folder.relative_to(root / 'results')}" for folder in found]
                page.goto(f"{server.url}#/compare?{urlencode([('run', name) for name in names])}")
                page.wait_for_function(
                    "() => document.images.length > 3"
                    " && [...document.images].every((one) => one.naturalWidth)"
                )
                page.screenshot(path=folder / "files.png")
                page.goto(f"{server.url}#/machine")
                page.get_by_text("Needs attention").wait_for()
                page.screenshot(path=folder / "machine.png")
        finally:
            server.close()
    return [folder / f"{name}.png" for name in ("runs", "parameters", "run", "files", "machine")]


if __name__ == "__main__":
    print(*take(Path(sys.argv[1])), sep="\n")  # noqa: T201
