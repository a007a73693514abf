"""Every public call under RLA_MODE=disabled and on a rank above 0: it works, and nothing is left of it."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.spooled import openings

from rla_client import exp_manager, logger, time_step_holder
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import ArgumentError, NoCheckpointError
from rla_client.manager import ExpManager
from rla_client.media.figure_recorder import MatplotlibRecorder
from rla_client.media.image_recorder import ImgRecorder
from rla_client.media.simple_plots import simple_hist, simple_plot, simple_scatter
from rla_client.media.video_recorder import VideoRecorder
from rla_client.run.record.large_variables import print_large_memory_variable
from rla_client.run.record.time_tracker import time_tracker

MODES = [("RLA_MODE", "disabled"), ("RANK", "1")]
SINKS = ["stdout", "csv", "log", "json", "tensorboard"]


def refuse(*_anything: object) -> None:
    pytest.fail("nothing is to be drawn or looked at")


def video_frames() -> str:
    with VideoRecorder("v") as video:
        video.add(np.zeros((8, 8, 3), np.uint8))
    return video.close()


def profiled() -> None:
    with logger.ProfileKV("a"), logger.open_time_tracker("b"):
        pass
    logger.profile("c")(lambda: None)()


def timed() -> None:
    exp_manager.time_record("a")
    exp_manager.time_record_end("a")
    with time_tracker("d"):
        pass
    time_tracker.log()
    print_large_memory_variable(lambda _line: None)


def checkpoints() -> None:
    exp_manager.new_saver(max_to_keep=2)
    exp_manager.keep_best("loss")
    exp_manager.keep_every(10)
    time_step_holder.set_time(7)
    exp_manager.save_checkpoint({"a": np.arange(3)}, related_variable={"epoch": 3})
    assert exp_manager.load_checkpoint()[0] == 7
    time_step_holder.set_time(9)
    exp_manager.save_checkpoint({"a": np.arange(4)})
    step, content = exp_manager.load_checkpoint()
    assert (step, len(content["a"]), exp_manager.get_custom_data("epoch")) == (9, 4, 3)
    for index, name in ((7, "checkpoint"), (None, "other")):
        with pytest.raises(NoCheckpointError, match="stores nothing"):
            exp_manager.load_checkpoint(index, name)
    here = os.path.realpath(str(exp_manager.checkpoint_dir))
    assert os.listdir(here) == [], "nothing stays if the process is killed"
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    assert len([link for link in links if os.path.realpath(link).startswith(here)]) == 1, "the newest"


def sharded() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    assert not exp_manager.save_sharded({"a": torch.arange(3)}).wait("whole", 1)
    assert exp_manager.checkpoint_status() == []
    with pytest.raises(NoCheckpointError, match="no open run that is stored"):
        exp_manager.load_sharded({"a": torch.zeros(3)})


def plain_logger() -> None:
    with logger.scoped_configure("plain", SINKS):
        logger.record_tabular("x", 1)
        assert logger.dump_tabular()["x"] == 1
        logger.get_tbx_writer().add_scalar("x", 1.0)
        assert Path(str(logger.get_dir())).is_dir()


def custom_data() -> None:
    exp_manager.add_custom_data("k", 1.0)
    exp_manager.print_custom_data("k")
    assert exp_manager.get_custom_data("k") == [1.0]
    exp_manager.clear_custom_data("k")
    exp_manager.clear_custom_data("k")


def rows() -> None:
    for record in (logger.record_tabular, logger.logkv, logger.logkv_mean, logger.record_mean, logger.record):
        record("a", 1.0)
    logger.logkvs({"b": 1})
    logger.log_key_value(["c"], [2])
    logger.ma_record_tabular("d", 1.0, 1)
    assert set(logger.getkvs()) == {"a", "b", "c", "d"}
    for dump in (logger.dump_tabular, logger.dumpkvs, logger.dump):
        logger.record_tabular("a", 1)
        assert dump()["a"] == 1


def made_active() -> None:
    with exp_manager.active():
        logger.log("a")


def texts() -> None:
    logger.set_level(logger.DEBUG)
    for write in (logger.log, logger.debug, logger.info, logger.warn, logger.backup, logger.error):
        write("text", 1)
    logger.set_level(logger.INFO)
    logger.log_time_tracker()
    logger.set_comm(None)
    logger.set_time(3)
    assert logger.timestep() == logger.get_time() == 3


def written() -> None:
    writer = logger.get_tbx_writer()
    writer.add_scalar("x", 1.0)
    writer.add_embedding(np.eye(3))
    writer.flush()
    tensorboard_summary = pytest.importorskip("tensorboardX.summary").scalar("s", 1.0)
    logger.log_from_tf_summary(tensorboard_summary.SerializeToString())
    exp_manager.add_summary_to_logger(tensorboard_summary.SerializeToString())
    exp_manager.add_summary_to_logger(exp_manager.dict_to_table_text_summary({"a": 1}, "table"))
    exp_manager.add_graph(Session())
    exp_manager.print_large_memory_variable()


class Session:
    """What of a tensorflow session counts here."""

    graph = property(lambda self: self)

    def as_graph_def(self) -> Session:
        return self

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        return b""


def fph() -> None:
    for count in (1, 2):
        exp_manager.update_fph(count)


def clock() -> None:
    exp_manager.set_timestep(3)
    assert exp_manager.get_timestep() == exp_manager.get_timstep() == 3


def names() -> None:
    assert exp_manager.auto_parse_info() == "a=1"
    assert exp_manager.record_date is not None
    assert exp_manager.record_date_to_str(exp_manager.record_date).count("-") == 3
    assert exp_manager.log_name_formatter("log/t", exp_manager.record_date).endswith("_&a=1")
    assert (exp_manager.get_version_num(), exp_manager.task_gen(["a", "b"])) == ("v1", "a-b")
    assert exp_manager.get_ignore_files("code", ["a"]) == []


CALLS: dict[str, Callable[[], object]] = {
    "pretty_plot_wrapper": lambda: MatplotlibRecorder.pretty_plot_wrapper("a", refuse, xlabel="x"),
    "pretty_plot_wrapper elsewhere": lambda: MatplotlibRecorder.pretty_plot_wrapper(
        "a", refuse, results_dir="mine"
    ),
    "save": lambda: MatplotlibRecorder.save("a/b.pdf", object()),  # type: ignore[arg-type]
    "save current": lambda: MatplotlibRecorder.save("a"),
    "image": lambda: ImgRecorder.save("i", np.zeros((4, 4, 3))),
    "video": lambda: VideoRecorder.save("v", np.zeros((2, 8, 8, 3), np.uint8)),
    "video frames": video_frames,
    "video prepare": lambda: VideoRecorder.prepare((2, 8, 8, 3)),
    "simple_plot": lambda: simple_plot("p", data=[[1, 2]]),
    "simple_hist": lambda: simple_hist("h", [1, 2]),
    "simple_scatter": lambda: simple_scatter("s", [np.zeros((2, 2))], ["t"]),
    "checkpoints": checkpoints,
    "custom data": custom_data,
    "rows": rows,
    "sharded": sharded,
    "texts": texts,
    "tensorboard": written,
    "profile": profiled,
    "times": timed,
    "plain logger": plain_logger,
    "fph": fph,
    "print_args": exp_manager.print_args,
    "print_log_dir": exp_manager.print_log_dir,
    "clock": clock,
    "names": names,
    "flush": lambda: [exp_manager.flush(1), logger.flush(1)],
    "flush_rows": lambda: [exp_manager.flush_rows(1), logger.flush_rows(1)],
    "sync": lambda: [exp_manager.sync_log_file(), exp_manager.sync_log_file(wait=True, timeout=1)],
    "archive": exp_manager.save_archive,
    "noted": lambda: exp_manager.note_checkpoint("elsewhere", 1, {"a": 1}),
    "serialize": exp_manager.serialize_object_and_save,
    "archive_content": exp_manager.archive_content,
    "folders": lambda: [exp_manager.folder_of(kind) for kind in ("log", "code", "checkpoint", "results")],
    "moved": lambda: exp_manager.update_log_files_location("elsewhere"),
    "fork": lambda: exp_manager.log_file_copy(loaded()),
    "parameters": lambda: exp_manager.update_hyper_param("b", 2),
    "late parameters": lambda: exp_manager.add_hyper_param({"b": 2}),
    "alerts": lambda: exp_manager.alert("title", "text"),
    "again": exp_manager.log_files_gen,
    "all ranks": lambda: exp_manager.log_files_gen(all_ranks=True),
    "close": exp_manager.close,
    "made active": made_active,
    "logger reset": logger.reset,
}
COVERED_ELSEWHERE = {
    "configure", "set_hyper_param", "add_record_param", "clear_record_param", "get_task_table_name",
    "log_files_gen", "load_tester", "of_run", "log_file_finder", "register_custom_type", "resume",
}  # fmt: skip


def loaded() -> ExpManager:
    manager = ExpManager()
    manager._data.item = object()  # type: ignore[assignment] # never looked at
    return manager


@pytest.fixture(params=MODES, ids=["disabled", "rank 1"])
def opened(
    request: pytest.FixtureRequest,
    fresh_manager: None,
    tmp_path: Path,
    places: Places,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """A run that stores nothing; at the end nothing is stored."""
    monkeypatch.setenv(*request.param)
    monkeypatch.setenv("MASTER_PORT", "29500")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    config = {"LOG_USED": SINKS, "AGENT": {"autostart": False}, "SEND_LOG_FILE": True}
    exp_manager.configure("t", config, tmp_path / "data", code_root=tmp_path / "code")
    exp_manager.set_hyper_param(a=1)
    exp_manager.add_record_param(["a"])
    exp_manager.log_files_gen()
    yield
    exp_manager.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"code", "tmp", "state"}
    assert openings(places) == []


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("call", CALLS)
def test_each_call_works_and_stores_nothing(call: str) -> None:
    if call == "checkpoints":
        pytest.importorskip("torch", reason="needs PyTorch")
    found = CALLS[call]()
    if isinstance(found, str):  # a recorder says where the file would be
        assert Path(found).name
        assert not Path(found).exists()


def test_no_public_call_is_forgotten() -> None:
    names = {
        name
        for name, member in inspect.getmembers(ExpManager)
        if callable(member) and not name.startswith("_")
    }
    text = inspect.getsource(inspect.getmodule(refuse))  # type: ignore[arg-type]
    missing = {name for name in names - COVERED_ELSEWHERE if f".{name}" not in text}
    missing |= {name for name in logger.__all__ if f"logger.{name}" not in text}
    assert missing == {"Logger", "configure", "get_current", "read_csv", "read_json", "read_tb",
                       "BACKUP", "DISABLED", "ERROR", "WARN"}  # fmt: skip


@pytest.mark.usefixtures("opened")
def test_wrong_arguments_are_wrong_here_too() -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    for wrong in (
        lambda: MatplotlibRecorder.save("../a"),
        lambda: simple_plot("p"),
        lambda: VideoRecorder("v", fps=-1),
        lambda: exp_manager.save_checkpoint({}, checkpoint_name="../x"),
        lambda: exp_manager.save_checkpoint({"a": lambda: None}),
    ):
        with pytest.raises(ArgumentError):
            wrong()


@pytest.mark.usefixtures("opened")
def test_what_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    monkeypatch.setattr("rla_client.run.temporary_item.MAX_KEPT_BYTES", 10_000)
    exp_manager.save_checkpoint({"a": np.arange(10)})
    exp_manager.save_checkpoint({"a": np.arange(10_000)})
    with pytest.raises(NoCheckpointError, match="not kept"):
        exp_manager.load_checkpoint()
    assert list(Path(str(exp_manager.checkpoint_dir)).iterdir()) == []


def test_resume_ends_the_run_that_was_open(
    fresh_manager: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: dict[str, Any] = {"AGENT": {"autostart": False}}
    exp_manager.configure("t", config, tmp_path / "data", code_root=tmp_path / "code")
    exp_manager.log_files_gen()
    index = Path(str(exp_manager.log_dir)).name
    day = "/".join(Path(str(exp_manager.log_dir)).parts[-4:-1])
    exp_manager.close()
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ArgumentError, match=r"rank 1 cannot join .* torchrun"):
        exp_manager.log_files_gen(all_ranks=True)
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setattr("rla_client.run.unstored_run.RESUMED_WAIT_S", 0.2)
    exp_manager.log_files_gen(all_ranks=True)
    joined = exp_manager.run
    assert joined is not None
    assert exp_manager.resume(f"{day}/{index}") == (0, None)
    assert exp_manager.run is not joined
    assert joined._closed
    assert exp_manager.resumed


def test_a_rank_that_joins_draws_what_goes_elsewhere(
    fresh_manager: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    config: dict[str, Any] = {"AGENT": {"autostart": False}}
    exp_manager.configure("t", config, tmp_path / "data", code_root=tmp_path / "code")
    exp_manager.log_files_gen(all_ranks=True)
    assert not Path(ImgRecorder.save("i", np.zeros((4, 4, 3)))).exists()
    assert Path(ImgRecorder.save("i", np.zeros((4, 4, 3)), results_dir=tmp_path / "own")).exists()
