"""The logger's API, up to what it hands to the spool: text, configuration, TensorBoard."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.spooled import events, openings, text_of, values

from rla_client import logger
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import ArgumentError, NotConfiguredError
from rla_client.contract.layout import SINKS
from rla_client.contract.spool.protocol import TextTarget

pytestmark = pytest.mark.usefixtures("plain_logger")


# -- text --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("log_folder")
def test_levels_gate_stdout_and_log_and_nothing_else(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    logger.set_time(4)
    logger.set_level(logger.ERROR)
    logger.debug("d")
    logger.info("i", 1)
    logger.warn("careful", 2)
    logger.error("e")
    logger.backup("kept")
    logger.set_level(logger.DISABLED)
    logger.error("e2")
    assert capsys.readouterr().out == "e\n[BACKUP] 4 : kept\n"
    assert text_of(places).splitlines()[-2:] == ["e", "[BACKUP] 4 : kept"]
    assert text_of(places, TextTarget.WARN) == "[WARN] 4 : careful 2\ne\ne2\n"
    assert text_of(places, TextTarget.BACKUP) == "[BACKUP] 4 : kept\n"


@pytest.mark.usefixtures("log_folder")
def test_log_joins_with_spaces_and_survives_a_bad_str(places: Places) -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no")

    logger.log("a", 1, 2.5, Bad(), "ü\udc80")
    assert text_of(places).splitlines()[-1] == "a 1 2.5 <Bad: str() failed: RuntimeError('no')> ü\\udc80"


def test_level_constants() -> None:
    found = [logger.DEBUG, logger.INFO, logger.WARN, logger.ERROR, logger.DISABLED, logger.BACKUP]
    assert found == [10, 20, 30, 40, 50, 60]


@pytest.mark.usefixtures("log_folder")
def test_a_closed_pipe_or_no_stdout_never_raises(monkeypatch: pytest.MonkeyPatch, places: Places) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        logger.log("to nobody")
        logger.record_tabular("a", 1)
        logger.dump_tabular()
        monkeypatch.setattr(sys, "stdout", None)
        logger.log("nowhere")
        pipe.flush()  # nothing of ours is left in its buffer
        monkeypatch.undo()
    assert values(places) == [{"a": 1}]


def test_before_any_configuration_everything_prints_and_nothing_is_written(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    assert logger.get_dir() is None
    logger.record_tabular("a", 1)
    logger.warn("w")
    assert "a" in logger.dump_tabular()
    assert logger.flush(0.1) is True
    assert "| a " in capsys.readouterr().out
    assert openings(places) == []


# -- configuration -----------------------------------------------------------------------------


def test_configure_takes_defaults_from_the_environment(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_LOGDIR", str(tmp_path / "env"))
    monkeypatch.setenv("OPENAI_LOG_FORMAT", "csv,json")
    logger.configure()
    assert logger.get_dir() == str(tmp_path / "env")
    assert (tmp_path / "env").is_dir()
    assert openings(places)[0]["sinks"] == ["csv", "json"]
    logger.record_tabular("a", 1)
    logger.dump_tabular()
    assert "| a " not in capsys.readouterr().out, "stdout is not among the outputs"


def test_configure_without_anything_uses_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    logger.configure()
    assert Path(str(logger.get_dir())).parent == tmp_path
    assert openings(places)[0]["sinks"] == ["csv", "log"]


def test_configure_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"unknown output 'tb'.*tensorboard"):
        logger.configure(tmp_path, ("tb",))
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="cannot make the log folder"):
        logger.configure(tmp_path / "file" / "below", ("csv",))


def test_suffix_and_file_names(places: Places, tmp_path: Path) -> None:
    logger.configure(tmp_path, ("csv", "log"), log_suffix="_eval", file_names={"log": "debug.log"})
    names = openings(places)[0]["names"]
    assert names["csv"] == "progress_eval.csv"
    assert names["log"] == "debug.log"
    with pytest.raises(ArgumentError, match="leave its folder"):
        logger.configure(tmp_path, ("csv",), file_names={"csv": "../x.csv"})


@pytest.mark.parametrize(
    ("file_names", "words"),
    [
        ({"csv": "out.csv", "log": "out.csv"}, "the csv output and the log output cannot both be 'out.csv'"),
        ({"csv": "log.txt"}, "the csv output and the log output cannot both be 'log.txt'"),
        ({"log": "warn.txt"}, "the log output and the warn output cannot both be 'warn.txt'"),
        ({"csv": "system.csv"}, "rla-agent itself writes .* 'system.csv': give one of them another name"),
        ({"csv": "below/x.csv"}, "a file name without a folder"),
    ],
)
def test_two_outputs_in_one_file_are_refused_at_once(
    places: Places, tmp_path: Path, file_names: dict[str, str], words: str
) -> None:
    with pytest.raises(ArgumentError, match=words):
        logger.configure(tmp_path, ("csv", "log"), file_names=file_names)
    assert openings(places) == []


@pytest.mark.slow
def test_names_of_outputs_that_are_not_asked_for_may_be_the_same(agent: Any, tmp_path: Path) -> None:
    logger.configure(tmp_path, ("csv",), file_names={"csv": "log.txt", "json": "x", "log": "x"})
    logger.logkvs({"v": 1})
    logger.dumpkvs()
    assert logger.flush(60)
    assert agent.status()["problems"] == []
    assert (tmp_path / "log.txt").read_text().startswith("time-step,")


def test_callback_sees_each_dump(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    logger.configure(tmp_path, ("csv",), log_callback_fn=seen.append)
    logger.record_tabular("a", 1)
    row = logger.dump_tabular()
    logger.dump_tabular()
    assert seen == [row]
    assert seen[0] is not row


def test_scoped_configure_brings_the_former_logger_back(
    places: Places, tmp_path: Path, log_folder: Path
) -> None:
    with logger.scoped_configure(tmp_path / "inner", ("csv",)):
        assert logger.get_dir() == str(tmp_path / "inner")
        logger.record_tabular("inner", 1)
        logger.dump_tabular()
    assert logger.get_dir() == str(log_folder)
    with pytest.raises(RuntimeError), logger.scoped_configure(tmp_path / "failed", ("csv",)):
        raise RuntimeError("training broke")
    assert logger.get_dir() == str(log_folder)
    logger.record_tabular("outer", 1)
    logger.dump_tabular()
    assert {"outer": 1} in values(places)


def test_reset_goes_back_to_printing(log_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert logger.get_dir() == str(log_folder)
    capsys.readouterr()
    logger.reset()
    assert logger.get_dir() is None
    assert capsys.readouterr().out == ""


def test_disabled_makes_no_file(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLA_MODE", "disabled")
    logger.configure(tmp_path / "none", SINKS)
    logger.record_tabular("a", 1)
    assert logger.dump_tabular()["a"] == 1
    logger.log("text")
    logger.get_current()
    assert logger.flush(1) is True
    assert not (tmp_path / "none").exists()
    assert openings(places) == []


# -- TensorBoard -------------------------------------------------------------------------------


@pytest.mark.usefixtures("log_folder")
def test_a_summary_becomes_an_event_and_its_scalars_rows(places: Places) -> None:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    logger.set_time(9)
    summary = Summary(value=[Summary.Value(tag="tf/loss", simple_value=0.5)])
    logger.log_from_tf_summary(summary)
    logger.log_from_tf_summary(summary.SerializeToString())
    logger.dump_tabular()
    assert values(places) == [{"tf/loss": 0.5}]
    sent = [Event.FromString(data) for data in events(places)]
    assert [(event.step, event.summary.value[0].tag) for event in sent] == [(9, "tf/loss")] * 2
    with pytest.raises(ArgumentError):
        logger.log_from_tf_summary(b"\xff\xff\xff")


def test_the_writer_needs_tensorboard_among_the_outputs(tmp_path: Path) -> None:
    logger.configure(tmp_path, ("csv",))
    with pytest.raises(ArgumentError, match="LOG_USED"):
        logger.get_tbx_writer()


@pytest.mark.usefixtures("log_folder")
def test_the_writer_is_one_and_uses_the_clock(places: Places) -> None:
    from tensorboardX.proto.event_pb2 import Event

    logger.set_time(12)
    writer = logger.get_tbx_writer()
    assert logger.get_tbx_writer() is writer
    writer.add_scalar("by/hand", 1.5)
    sent = [Event.FromString(data) for data in events(places)]
    assert [e.step for e in sent if e.summary.value and e.summary.value[0].tag == "by/hand"] == [12]


# -- names -------------------------------------------------------------------------------------


def test_what_reads_back_is_the_loggers() -> None:
    assert callable(logger.read_csv)
    assert callable(logger.read_json)
    assert callable(logger.read_tb)
    assert not hasattr(logger, "no_such_name")


def test_errors_are_also_builtins() -> None:
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(NotConfiguredError, RuntimeError)
