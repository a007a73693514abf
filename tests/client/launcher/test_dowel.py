from __future__ import annotations

import csv
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rla_client import logger as rla_logger
from rla_client.contract.errors import ArgumentError
from rla_client.launcher import dowel, wrap_experiment
from rla_client.launcher.dowel.dowel_logger import logger
from rla_client.launcher.dowel.table_input import Histogram, TabularInput, tabular
from rla_client.launcher.outputs import current_outputs
from rla_client.launcher.pending_streams import await_end


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
        tabular.record("weights", Histogram(np.array([[1.0, 2.0], [3.0, step]])))
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


@pytest.mark.slow
def test_histograms_and_figures_of_an_experiment_go_to_tensorboard_at_the_rows_step(agent: object) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_subplot().plot([1, 2])

    @wrap_experiment(log_dir="run", archive_launch_repo=False, x_axis="step")
    def experiment(ctxt: Any) -> None:
        tabular.record("figure", figure)
        two_rows()

    experiment()
    await_end("run")
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
            if not isinstance(data, str):
                data.mark("k")  # dowel asks its outputs to

        def close(self) -> None:
            self.closed = True

    output = Kept()
    logger.disable_warnings()
    tabular.disable_warnings()

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
    assert output.heard == [("[experiment] p ", "text"), ("[experiment] ", {"k": 2})]


def test_what_is_no_output() -> None:
    wrong: Any
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


LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| (.*)")


def said(text: str) -> list[str]:
    """Lines of a text log, of those with a time what comes behind it; tables are left out."""
    lines = [line for line in text.splitlines() if not line.startswith(("---", "| "))]
    return [found[1] if (found := LINE.fullmatch(line)) else line for line in lines]


@pytest.mark.slow
def test_texts_bear_their_time_and_the_experiments_name(
    agent: object, capsys: pytest.CaptureFixture[str]
) -> None:
    @wrap_experiment(log_dir="run", archive_launch_repo=False, name_parameters="passed")
    def experiment(ctxt: Any, seed: int, quiet: bool = False) -> None:
        del quiet
        with logger.prefix(f"epoch #{seed} | "):
            logger.log("one\ntwo")
        rla_logger.info("by", "rla's logger")
        rla_logger.backup("kept")
        tabular.record("k", 1)
        logger.log(tabular)
        logger.dump_all(seed)
        logger.log("")

    before = datetime.now().replace(microsecond=0)  # noqa: DTZ005 - as the log has it
    experiment(seed=3)
    experiment({"log_dir": "second"}, seed=4)
    await_end("run")
    folder = Path("run").resolve()
    text = (folder / "debug.log").read_text()
    name = "[experiment_seed=3] "
    texts = [f"Logging to {folder}", "epoch #3 | one"]
    rest = ["by rla's logger", "[BACKUP] 0 : kept", ""]
    assert said(text) == [*(name + one for one in texts), "two", *(name + one for one in rest)]
    assert "\n| k         | 1 |\n" in text
    times = [datetime.fromisoformat(line[:19]) for line in text.splitlines() if LINE.match(line)]
    assert before <= times[0] <= times[-1] <= datetime.now()  # noqa: DTZ005
    assert (folder / "backup.txt").read_text() == "[BACKUP] 0 : kept\n"
    printed = said(capsys.readouterr().out)
    assert printed[: len(said(text))] == said(text)
    assert "[experiment_seed=4] epoch #4 | one" in printed


@pytest.mark.slow
def test_the_text_of_an_earlier_part_keeps_its_times(agent: object) -> None:
    @wrap_experiment(log_dir="run", archive_launch_repo=False, use_existing_dir=True)
    def experiment(ctxt: Any, text: str) -> None:
        logger.log(text)

    experiment(text="first")
    await_end("run")
    first = Path("run/debug.log").read_text()
    experiment(text="second")
    await_end("run")
    both = Path("run/debug.log").read_text()
    assert both.startswith(first)
    assert said(both)[-1] == "[experiment] second"


@pytest.mark.parametrize("stamped", [True, False])
def test_an_added_stdout_prints_each_text_once(stamped: bool, capsys: pytest.CaptureFixture[str]) -> None:
    logger.add_output(dowel.StdOutput(with_timestamp=stamped))
    try:
        with logger.prefix("p "):
            logger.log("text")
    finally:
        logger.remove_all()
    line = capsys.readouterr().out.removesuffix("\n")
    found = LINE.fullmatch(line)
    assert (found[1] if found else line) == "p text"
    assert (found is not None) == stamped


@pytest.mark.slow
def test_texts_bear_them_also_after_the_outputs_began_anew(agent: object) -> None:
    @wrap_experiment(log_dir="run", archive_launch_repo=False)
    def experiment(ctxt: Any) -> None:
        two_rows()
        own = current_outputs()
        assert own is not None
        own.rewind(1)
        rla_logger.info("after")
        logger.log("it")

    experiment()
    await_end("run")
    assert said(Path("run/debug.log").read_text())[-2:] == ["[experiment] after", "[experiment] it"]
