"""Runs of a search over hyper-parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.page_lab import PageServer
from support.page_runs import write_page_run

Serve = Callable[..., PageServer]
RATES = (1e-4, 1e-3, 1e-2, 1e-1)
NETS = ("big", "small", "tiny")


def write_search(root: Path) -> None:
    """24 runs: `score` follows lr, `net` moves it a little, `seed` and `env` do nothing."""
    for number in range(24):
        lr, net = RATES[number % 4], NETS[number // 4 % 3]
        score = 100.0 * (number % 4) + 10.0 * NETS.index(net)
        params = {"lr": lr, "net": net, "seed": number * 7 % 24, "env": "Hopper"}
        write_page_run(root, number, {"score": [0.0, score], "other": [1.0, -score]}, params=params)
