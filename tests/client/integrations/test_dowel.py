"""The dowel package with our output beside its CsvOutput."""

from __future__ import annotations

import csv

import pytest
from support.beside import check_it_keeps_to_its_run
from support.user_scripts import Scripts

pytest.importorskip("dowel", reason="dowel is not installed: make test-integrations")
pytestmark = pytest.mark.slow


def test_rows_are_those_of_its_csv_output(scripts: Scripts) -> None:
    scripts.run(
        """
import dowel, numpy as np
from dowel import logger, tabular
from rla_client.integrations.dowel import RLAOutput

logger.add_output(dowel.CsvOutput("theirs.csv"))
logger.add_output(RLAOutput("garage", {"seed": 1}))
for epoch in range(3):
    with logger.prefix(f"epoch #{epoch} | "):
        logger.log("sampling")
        with tabular.prefix("eval/"):
            tabular.record("return", np.float32(epoch) / 4)
        tabular.record("steps", 100 * epoch)
        tabular.record("note", "word")
        tabular.record("weights", dowel.Histogram(np.arange(9.0) + epoch))
        logger.log(tabular)
        logger.dump_all(100 * epoch)
        tabular.clear()
tabular.record("steps", 1)
logger.log(tabular)
logger.remove_all()
logger.add_output(RLAOutput("second"))
tabular.record("steps", 2)
logger.log(tabular)
logger.dump_all(7)
"""
    )
    run, second = scripts.runs(2)
    assert [(second.table, row["time-step"], row["steps"]) for row in second.rows()] == [("second", "7", "2")]
    with (scripts.folder / "theirs.csv").open(newline="") as file:
        theirs = [{key: cell for key, cell in row.items() if cell} for row in csv.DictReader(file)]
    rows = run.rows()
    assert [row["time-step"] for row in rows] == ["0", "100", "200", "201"]
    assert [{key: row[key] for key in row if key not in {"time-step", "timestamp"}} for row in rows] == theirs
    assert run.parameters == {"seed": 1}
    assert "epoch #1 | sampling" in (run.log / "log.txt").read_text()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.log / "tb" / "events"), size_guidance={"histograms": 0}).Reload()
    assert [event.step for event in events.Histograms("weights")] == [0, 100, 200]


def test_it_keeps_to_the_run_that_it_joined(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    check_it_keeps_to_its_run(
        scripts,
        """import dowel
from rla_client.integrations.dowel import RLAOutput
dowel.logger.add_output(RLAOutput("x"))""",
        """dowel.tabular.record("loss", step)
dowel.logger.log(dowel.tabular)
dowel.logger.dump_output_type(RLAOutput, step)
dowel.tabular.clear()""",
    )
