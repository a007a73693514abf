"""A run with checkpoints that may be pruned, and the command that does it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from rla_agent.replicate.status import replication_status
from support.replication_lab import ITEM, Node, random_bytes
from support.waiting import wait_until

STEPS = (10, 20, 30)


def fill(node: Node, item: str = ITEM, state: str = "finished", size: int = 60_000) -> Path:
    """A run with three checkpoints, two figures and rows, last written an hour ago."""
    folder = node.item("checkpoint", item)
    for step in STEPS:
        (folder / f"checkpoint_{step}.pt").write_bytes(random_bytes(size, step))
    (folder / "replay.npz").write_bytes(random_bytes(size, 5))
    results = node.item("results", item)
    for step in STEPS[:2]:
        (results / f"{step}-figure.png").write_bytes(random_bytes(size, step + 1))
    log = node.run(item, state)
    (log / "progress.csv").write_text("a,time-step\n" + "".join(f"{n},{n}\n" for n in range(2000)))
    (log / "parameter.json").write_text("{}")
    hour_ago = time.time() - 3600
    for kind in (folder, results):
        for path in kind.iterdir():
            os.utime(path, (hour_ago, hour_ago))
    return folder


def make_settled(node: Node) -> None:
    """As if everything had been sent ten minutes ago, and confirmed."""
    with closing(sqlite3.connect(node.state / "replicate" / "ledger.db", timeout=10)) as db:
        db.execute("UPDATE files SET sent_at = sent_at - 600, check_at = NULL")
        db.commit()


def wait_clean(node: Node) -> None:
    """Until nothing waits any more."""

    def idle() -> bool:
        targets = replication_status(node.state)["targets"]
        return bool(targets) and not any(kind["files"] for kind in targets[0]["backlog"].values())

    wait_until(idle, 20, "an empty backlog")


def prune(node: Node, *words: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`rla-agent prune WORDS` on a node."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "rla_agent", "prune", *words],
        env={**os.environ, "RLA_STATE_DIR": str(node.state), "HOME": str(node.folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
