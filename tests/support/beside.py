"""An adapter in a run of the script, beside another run that is opened later."""

from __future__ import annotations

from support.user_scripts import Scripts

SCRIPT = """
import rla_client
from rla_client import exp_manager, logger

with rla_client.init("first") as first:
    MAKE
    with rla_client.init("second") as second:
        for step in (10, 20):
            LOG
            first.save_checkpoint({"step": step})
            rla_client.log({"own": step}, step=1000 + step)
        second.save_checkpoint({})
"""


def check_it_keeps_to_its_run(scripts: Scripts, make: str, log: str, name: str = "loss") -> None:
    """What the adapter logs is of the run that it joined, whose clock follows; the other has its own.

    Args:
        scripts: runs them.
        make: lines that make the adapter.
        log: lines that log `name` at `step`.
        name: of the column.
    """
    script = SCRIPT.replace("MAKE", make.replace("\n", "\n    "))
    scripts.run(script.replace("LOG", log.replace("\n", "\n            ")))
    first, second = sorted(scripts.runs(2), key=lambda run: run.table)
    rows = [(row["time-step"], float(row[name])) for row in first.rows() if name in row]
    assert rows == [("10", 10.0), ("20", 20.0)]
    assert [(row["time-step"], row["own"]) for row in second.rows()] == [("1010", "10"), ("1020", "20")]
    saved = [sorted(path.name for path in run.folder("checkpoint").glob("*.pt")) for run in (first, second)]
    assert saved == [["checkpoint_10.pt", "checkpoint_20.pt"], ["checkpoint_1020.pt"]]
