"""The logger's API, up to what it hands to the spool."""

from __future__ import annotations

import math
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.spooled import events, openings, rows, text_of, values

from rla_client import logger, time_step_holder
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import ArgumentError, NotConfiguredError
from rla_client.contract.layout import SINKS
from rla_client.contract.spool.protocol import TextTarget
from rla_client.run.record.run_logger import Logger

pytestmark = pytest.mark.usefixtures("plain_logger")


@pytest.mark.usefixtures("log_folder")
def test_a_dump_returns_the_row_with_clock_and_time_and_clears(places: Places) -> None:
    logger.set_time(7)
    logger.record_tabular("a/x", 1)
    logger.logkv("a/y", 2.5)
    assert logger.getkvs() == {"a/x": 1, "a/y": 2.5}
    row = logger.dump_tabular()
    assert row["a/x"] == 1
    assert row["a/y"] == 2.5
    assert row["time-step"] == 7
    assert isinstance(row["timestamp"], float)
    assert logger.getkvs() == {}
    (written,) = rows(places)
    assert written.step == 7
    assert written.timestamp == row["timestamp"]
    assert written.values == {"a/x": 1, "a/y": 2.5}


@pytest.mark.usefixtures("log_folder")
def test_an_empty_dump_writes_nothing(places: Places) -> None:
    assert logger.dumpkvs() == {}
    assert rows(places) == []


@pytest.mark.usefixtures("log_folder")
def test_the_last_value_of_a_key_counts_as_it_was_at_the_call(places: Places) -> None:
    array = np.array([1.0, 2.0])
    logger.record_tabular("a", 1)
    logger.record_tabular("a", 2)
    logger.record_tabular("array", array)
    array[:] = 9
    logger.dump_tabular()
    assert values(places) == [{"a": 2, "array": [1.0, 2.0]}]


@pytest.mark.usefixtures("log_folder")
def test_numbers_of_every_kind(places: Places) -> None:
    torch = pytest.importorskip("torch")
    given: dict[str, Any] = {
        "np32": np.float32(0.5),
        "npint": np.int64(3),
        "npbool": np.bool_(True),
        "zero_d": np.array(4.0),
        "torch": torch.tensor(1.5, requires_grad=True),
        "torchint": torch.tensor(6),
        "nan": math.nan,
        "inf": -math.inf,
        "huge": 1 << 90,
        "bool": True,
    }
    for key, value in given.items():
        logger.record_tabular(key, value)
    logger.dump_tabular()
    (row,) = values(places)
    assert math.isnan(row.pop("nan"))
    assert row == {
        "np32": 0.5, "npint": 3, "npbool": True, "zero_d": 4.0, "torch": 1.5, "torchint": 6,
        "inf": -math.inf, "huge": 1 << 90, "bool": True,
    }  # fmt: skip
    assert [type(row[key]) for key in ("np32", "npint", "npbool", "torchint")] == [float, int, bool, int]


@pytest.mark.usefixtures("log_folder")
def test_text_is_kept_and_warned_about_once_a_key(places: Places) -> None:
    for _ in range(3):
        logger.record_tabular("phase", "warm-up")
        logger.record_tabular("loss", 1.0)
        logger.dump_tabular()
    assert values(places) == [{"phase": "warm-up", "loss": 1.0}] * 3
    warnings = text_of(places, TextTarget.WARN)
    assert warnings.count("phase") == 1
    assert "TensorBoard" in warnings


@pytest.mark.usefixtures("log_folder")
def test_keys_and_texts_that_cannot_be_encoded_harm_nothing(places: Places) -> None:
    logger.record_tabular("bad\udc80key", 1)
    logger.record_tabular("text", "bad\udc80")
    logger.record_tabular(5, 2)  # type: ignore[arg-type]  # users do
    logger.dump_tabular()
    logger.record_tabular("next", 1)
    logger.dump_tabular()
    first, second = values(places)
    assert first == {"bad\\udc80key": 1, "text": "bad\\udc80", "5": 2}
    assert second == {"next": 1}


@pytest.mark.usefixtures("log_folder")
def test_a_row_of_too_many_keys_is_refused_and_the_next_one_works(places: Places) -> None:
    for number in range(65537):
        logger.record_tabular(f"k{number}", number)
    with pytest.raises(ArgumentError, match="65537 keys"):
        logger.dump_tabular()
    logger.record_tabular("a", 1)
    logger.dump_tabular()
    assert values(places) == [{"a": 1}]


@pytest.mark.usefixtures("log_folder")
def test_dicts_pairs_and_prefixes(places: Places) -> None:
    logger.logkvs({"x": 1, "y": 2}, prefix="eval/", exclude="csv")
    logger.log_key_value(["a", "b"], [3, 4], "pre/")
    logger.dump_tabular()
    (row,) = rows(places)
    assert row.values == {"eval/x": 1, "eval/y": 2, "pre/a": 3, "pre/b": 4}
    assert row.excluded == {"eval/x": ["csv"], "eval/y": ["csv"]}


@pytest.mark.usefixtures("log_folder")
def test_means_are_of_the_values_since_the_last_dump(places: Places) -> None:
    for value in (1, 2, np.float32(6)):
        logger.logkv_mean("m", value)
    logger.dump_tabular()
    logger.logkv_mean("m", 10)
    logger.dump_tabular()
    assert values(places) == [{"m": 3.0}, {"m": 10.0}]
    with pytest.raises(ArgumentError, match="takes a number"):
        logger.logkv_mean("m", "text")


@pytest.mark.usefixtures("log_folder")
def test_moving_average_is_silent_until_the_window_is_full(places: Places) -> None:
    for value in (1, 2, 3, 7):
        logger.ma_record_tabular("ma", value, 3)
        logger.record_tabular("i", value)
        logger.dump_tabular()
    assert [row.get("ma") for row in values(places)] == [None, None, 2.0, 4.0]


@pytest.mark.usefixtures("log_folder")
def test_ignore_nan_leaves_nan_out_of_the_window(places: Places) -> None:
    for value in (1.0, math.nan, 3.0):
        logger.ma_record_tabular("kept", value, 2, ignore_nan=True)
        logger.ma_record_tabular("lost", value, 2)
        logger.record_tabular("i", 0)
        logger.dump_tabular()
    found = values(places)
    assert [row.get("kept") for row in found] == [None, None, 2.0]
    assert math.isnan(found[2]["lost"])


def test_moving_average_refuses_what_it_cannot_mean() -> None:
    with pytest.raises(ArgumentError, match="record_len"):
        logger.ma_record_tabular("ma", 1.0, 0)
    with pytest.raises(ArgumentError, match="number"):
        logger.ma_record_tabular("ma", "x", 3)


@pytest.mark.usefixtures("log_folder")
def test_freq_lets_a_key_pass_every_n_time_steps(places: Places) -> None:
    for step in range(8):
        logger.set_time(step)
        logger.record_tabular("rare", step, freq=3)
        logger.record_tabular("always", step)
        logger.dump_tabular()
    assert [row["rare"] for row in values(places) if "rare" in row] == [0, 3, 6]


def test_a_new_experiment_remembers_nothing_of_the_former(places: Places, tmp_path: Path) -> None:
    for run in ("one", "two"):
        logger.configure(tmp_path / run, ("csv",))
        logger.set_time(5 if run == "one" else 0)
        logger.ma_record_tabular("ma", 1.0, 2)
        logger.record_tabular("rare", 1, freq=100)
        logger.record_tabular("i", 1)
        logger.set_level(logger.ERROR if run == "one" else logger.get_current().level)
        logger.dump_tabular()
    first, second = values(places)
    assert first == second == {"rare": 1, "i": 1}
    assert logger.get_current().level == logger.INFO


@pytest.mark.usefixtures("log_folder")
def test_exclude_holds_for_that_record_only(places: Places) -> None:
    logger.record_tabular("a", 1, exclude=("csv", "tensorboard"))
    logger.record_tabular("b", 1, exclude="log")
    logger.record_tabular("b", 2)
    logger.dump_tabular()
    logger.record_tabular("a", 1)
    logger.dump_tabular()
    first, second = rows(places)
    assert first.excluded == {"a": ["csv", "tensorboard"]}
    assert second.excluded is None


@pytest.mark.parametrize("step", [3, 3.0, np.int64(3), np.array(3)])
def test_a_step_in_the_place_of_exclude_is_explained(step: Any) -> None:
    with pytest.raises(ArgumentError, match=r"third argument .* is `exclude`.*set_time\(step\)"):
        logger.record_tabular("loss", 0.5, step)
    assert logger.getkvs() == {}


@pytest.mark.parametrize("step", [100, None, np.int64(3)])
def test_a_step_in_the_place_of_a_prefix_is_explained(step: Any) -> None:
    with pytest.raises(ArgumentError, match=r"second argument of logkvs is a text .*set_time\(step\)"):
        logger.logkvs({"loss": 0.5}, step)
    with pytest.raises(ArgumentError, match=r"third argument of log_key_value is .*set_time\(step\)"):
        logger.log_key_value(["loss"], [0.5], step)
    assert logger.getkvs() == {}


def test_dir_shows_what_users_call() -> None:
    assert set(dir(logger)) == set(logger.__all__)
    assert {"logkv_mean", "read_csv", "record_tabular"} <= set(dir(logger))


def test_exclude_names_outputs() -> None:
    with pytest.raises(ArgumentError, match="choose from " + ", ".join(SINKS)):
        logger.record_tabular("a", 1, exclude="cvs")
    for function in (logger.record_tabular, logger.configure):
        assert ", ".join(SINKS) in str(function.__doc__), function.__name__


@pytest.mark.usefixtures("log_folder")
def test_excluded_from_stdout_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    logger.record_tabular("shown", 1)
    logger.record_tabular("hidden", 1, exclude="stdout")
    logger.dump_tabular()
    printed = capsys.readouterr().out
    assert "| shown " in printed
    assert "hidden" not in printed
    logger.record_tabular("hidden", 1, exclude="stdout")
    logger.dump_tabular()
    assert capsys.readouterr().out == "", "the clock alone is no row to print"


class Communicator:
    """Two ranks that are threads, with the one method that is used of a communicator."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=60)
        self.given: list[Any] = [None, None]

    def at(self, rank: int) -> Any:
        shared = self

        class Rank:
            def gather(self, value: Any, root: int) -> list[Any] | None:
                shared.given[rank] = value
                shared.barrier.wait()
                found = list(shared.given) if rank == root else None
                shared.barrier.wait()
                return found

        return Rank()


def test_values_are_averaged_over_ranks_by_their_counts(places: Places, tmp_path: Path) -> None:
    from rla_client.run.record.run_logger import Logger

    logger.configure(tmp_path, ("csv",))
    shared = Communicator()
    logger.set_comm(shared.at(0))
    other = Logger(None, (), comm=shared.at(1))
    results: list[dict[str, Any]] = []

    def second_rank() -> None:
        other.record("loss", 4.0)
        for value in (1.0, 2.0, 3.0):
            other.record_mean("mean", value)
        other.record("name", "b")
        results.append(other.dump())
        results.append(other.dump())  # nothing recorded: it takes part all the same

    thread = threading.Thread(target=second_rank)
    thread.start()
    logger.record_tabular("loss", 2.0)
    logger.logkv_mean("mean", 6.0)
    logger.record_tabular("name", "a")
    row = logger.dump_tabular()
    logger.record_tabular("only", 1)
    logger.dump_tabular()
    thread.join(60)
    assert row["loss"] == 3.0
    assert row["mean"] == (2.0 * 3 + 6.0) / 4
    assert row["name"] == "a"
    assert results == [{}, {}]
    assert values(places)[1] == {"only": 1}


@pytest.mark.usefixtures("log_folder")
def test_the_clock() -> None:
    logger.set_time(np.int64(3))
    assert logger.timestep() == logger.get_time() == time_step_holder.get_time() == 3


@pytest.mark.usefixtures("log_folder")
def test_profile_adds_seconds(places: Places) -> None:
    with logger.ProfileKV("io"):
        pass

    @logger.profile("work")
    def work(x: int) -> int:
        return x + 1

    assert work(1) == 2
    work(2)
    logger.dump_tabular()
    (row,) = values(places)
    assert sorted(row) == ["wait_io", "wait_work"]
    assert all(value >= 0 for value in row.values())


@pytest.mark.usefixtures("log_folder")
def test_time_tracker_is_kept_out_of_the_csv(places: Places) -> None:
    with logger.open_time_tracker("roll"):
        pass
    logger.log_time_tracker()
    logger.dump_tabular()
    (row,) = rows(places)
    assert row.values["time_used/total calls/roll"] == 1
    assert row.excluded is not None
    assert all("csv" in row.excluded[key] for key in row.values if key.startswith("time_used/"))


@pytest.mark.usefixtures("log_folder")
def test_rows_of_two_threads_are_whole(places: Places) -> None:
    logger.set_level(logger.DISABLED)
    logger.get_current().sinks = frozenset({"csv"})

    def work(name: str) -> None:
        for number in range(500):
            logger.record_tabular(name, number)
            logger.dump_tabular()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for name in ("a", "b"):
        seen = [row[name] for row in values(places) if name in row]
        assert seen == list(range(500)), f"{name}: each value once, in order"


@pytest.mark.usefixtures("log_folder")
def test_own_values_named_like_the_columns_of_each_row_are_kept(
    places: Places,
) -> None:
    logger.set_time(3)
    logger.record_tabular("time-step", 7, exclude="log")
    logger.record_tabular("timestamp", 2.5)
    logger.record_tabular("_timestamp", 1)
    row = logger.dump_tabular()
    assert row["time-step"] == 3
    assert row["timestamp"] > 1e9
    kept = {"_time-step": 7, "__timestamp": 2.5, "_timestamp": 1}
    assert kept.items() <= row.items()
    logger.get_current().write_row({"timestamp": 9}, 4, 1.0, ("log",))
    first, second = rows(places)
    assert first.values == kept
    assert first.excluded == {"_time-step": ["log"]}
    assert (second.values, second.step) == ({"_timestamp": 9}, 4)
    warned = text_of(places, TextTarget.WARN)
    assert warned.count("time-step is a column that each row has: your value is kept as _time-step") == 1
    assert warned.count("timestamp is a column that each row has: your value is kept as __timestamp") == 1


LONG = 10**5000  # more digits than Python writes


@pytest.mark.usefixtures("log_folder")
def test_integers_of_any_length_never_end_training(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    logger.record_tabular("a", LONG)
    logger.record_tabular("b", -LONG)
    logger.record_tabular("c", [LONG, {"d": LONG}])
    logger.record_tabular("e", 10**400)
    logger.record_tabular(LONG, 1)  # type: ignore[arg-type]
    row = logger.dump_tabular()
    assert row["a"] == hex(LONG)
    assert row["e"] == 10**400
    logger.get_current().write_row({"a": LONG}, 1, 1.0, ())
    assert [found.values["a"] for found in rows(places)] == [hex(LONG)] * 2
    logger.info(LONG)
    logger.warn(LONG)
    logger.backup(LONG)
    assert capsys.readouterr().out.count(hex(LONG)) == 3
    with pytest.raises(ArgumentError, match="a float can hold"):
        logger.logkv_mean("m", LONG)
    with pytest.raises(ArgumentError, match="a float can hold"):
        logger.logkv_mean("m", 10**400)
    with pytest.raises(ArgumentError, match="a float can hold"):
        logger.ma_record_tabular("m", LONG, 2)
    with pytest.raises(ArgumentError, match="a time-step has at most"):
        time_step_holder.set_time(LONG)


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


def test_what_reads_back_is_the_loggers() -> None:
    assert callable(logger.read_csv)
    assert callable(logger.read_json)
    assert callable(logger.read_tb)
    assert not hasattr(logger, "no_such_name")


def test_errors_are_also_builtins() -> None:
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(NotConfiguredError, RuntimeError)


def test_brief_prints_the_first_rows_and_where_the_others_are(capsys: pytest.CaptureFixture[str]) -> None:
    brief = Logger(None, ("brief", "log"))
    for number in range(10):
        brief.record("loss", number)
        brief.dump()
        brief.log(f"text {number}")
    printed = capsys.readouterr().out
    assert printed.count("| loss ") == 3
    assert printed.count("further rows are not printed, log.txt has them") == 1
    assert printed.count("text ") == 10  # what the script itself says is not a row
    both = Logger(None, ("brief", "stdout"))
    for number in range(10):
        both.record("loss", number)
        both.dump()
    assert capsys.readouterr().out.count("| loss ") == 10
