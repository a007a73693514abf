from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rla_client.errors import ArgumentError
from rla_client.experiment import dowel, wrap_experiment
from rla_client.experiment.dowel import Histogram, TabularInput, logger, tabular
from rla_client.experiment.settle import settle


@pytest.fixture(autouse=True)
def own_folder(places: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tabular.clear()


def two_rows() -> None:
    for step in range(2):
        with logger.prefix(f"itr {step} | "):
            logger.log("running")
        tabular.clear()
        tabular.record("step", step)
        with tabular.prefix("late/" if step else "early/"):
            tabular.record("a,b", 1.5)
        tabular.record("weights", Histogram([[1.0, 2.0], [3.0, step]]))
        logger.log(tabular)
        logger.dump_all(step)


def test_added_outputs_get_text_and_rows_until_they_are_removed() -> None:
    for output in (
        dowel.StdOutput(),
        dowel.TextOutput("out/log.txt", with_timestamp=False),
        dowel.CsvOutput("out/rows.csv"),
        dowel.TensorBoardOutput("out/tb", x_axis="step"),
    ):
        logger.add_output(output)
    two_rows()
    assert logger.has_output_type(dowel.CsvOutput)
    logger.remove_all()
    assert not logger.has_output_type(object)
    logger.log("nobody hears this")
    with open("out/rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"step": "0", "early/a,b": "1.5", "late/a,b": ""},
        {"step": "1", "early/a,b": "", "late/a,b": "1.5"},
    ]
    lines = Path("out/log.txt").read_text().splitlines()
    assert [line for line in lines if "running" in line] == ["itr 0 | running", "itr 1 | running"]
    assert any("late/a,b" in line for line in lines)
    events = EventAccumulator("out/tb", size_guidance={"histograms": 0}).Reload()
    assert [event.step for event in events.Scalars("step")] == [0, 1]
    assert events.Histograms("weights")[1].histogram_value.num == 4


def test_histograms_and_figures_of_an_experiment_go_to_tensorboard_at_the_rows_step(agent: object) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_subplot().plot([1, 2])

    @wrap_experiment(log_dir="run", archive_launch_repo=False, x_axis="step")
    def experiment(ctxt: Any) -> None:
        tabular.record("figure", figure)
        two_rows()

    experiment()
    settle("run")
    with open("run/progress.csv", newline="") as file:
        assert csv.DictReader(file).fieldnames == ["early/a,b", "step", "time-step", "timestamp", "late/a,b"]
    events = EventAccumulator("run/tb/events", size_guidance={"histograms": 0}).Reload()
    assert [event.step for event in events.Histograms("weights")] == [0, 1]
    assert events.Histograms("weights")[0].histogram_value.max == pytest.approx(3, rel=0.2)


def test_an_experiments_own_added_outputs_end_with_it(agent: object) -> None:
    class Kept(dowel.LogOutput):
        closed = False
        heard: list[Any]

        def __init__(self) -> None:
            self.heard = []

        def record(self, data: Any, prefix: str = "") -> None:
            self.heard.append((prefix, data if isinstance(data, str) else data.as_dict))

        def close(self) -> None:
            self.closed = True

    output = Kept()

    @wrap_experiment(log_dir="run", archive_launch_repo=False)
    def experiment(ctxt: Any) -> None:
        logger.add_output(output)
        with logger.prefix("p "):
            logger.log("text")
        tabular.record("k", np.float32(2))
        logger.log(tabular)

    experiment()
    logger.log("outside")
    assert output.closed
    assert output.heard == [("p ", "text"), ("", {"k": 2})]


def test_what_is_no_output() -> None:
    for wrong in (dowel.StdOutput, object(), None):
        with pytest.raises(ArgumentError):
            logger.add_output(wrong)


def test_tables_leave_pictures_out() -> None:
    table = TabularInput()
    table.record("a", 1)
    table.record("h", Histogram([1]))
    assert table.as_primitive_dict == {"a": 1}
    assert "| a " in str(table)
    assert "h" not in str(table)


def test_a_full_disk_under_an_added_output_does_not_end_the_training(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for output in (dowel.TextOutput("/dev/full"), dowel.TextOutput("fine.txt", with_timestamp=False)):
        logger.add_output(output)
    try:
        logger.log("one")
        logger.log("two")
    finally:
        logger.remove_all()
    assert Path("fine.txt").read_text() == "one\ntwo\n"
    assert caplog.text.count("output TextOutput lost what it was given") == 1
