"""The outbox: order, waiting while the spool refuses, retries under exceptions, messages that fit, limits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.forked import in_forked_child
from support.spooled import bare_opening, marks, openings, stop_autostart
from support.spooled import rows as spooled_rows

import rla_client.stream.outbox as outbox_module
from rla_agent.model.frame_decoder import parse
from rla_agent.model.records import Close, Mark, Row
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.losses import ROW, Loss
from rla_client.contract.spool.opening import Continuation
from rla_client.contract.spool.protocol import FrameKind, pack
from rla_client.contract.spool.segments import segment_numbers, segment_path, spool_bytes, stream_names
from rla_client.stream import quota as quota_module
from rla_client.stream import segment_writer as segment_writer_module
from rla_client.stream.outbox import Outbox


class BoomError(Exception):
    pass


@pytest.fixture
def new_outbox(places: Places) -> Iterator[Callable[..., Outbox]]:
    made: list[Outbox] = []

    def make(**settings: Any) -> Outbox:
        made.append(
            Outbox(places, bare_opening(run=f"run-{len(made)}"), AgentConfig(autostart=False, **settings))
        )
        return made[-1]

    yield make
    for outbox in made:
        outbox.release()


def put(outbox: Outbox, seq: int, size: int = 10) -> None:
    outbox.put(FrameKind.ROW, pack([seq, 1.0, {"x": "y" * size}]), float(seq), 1)


def contents(outbox: Outbox) -> list[object]:
    folder = outbox.stream_folder
    assert folder is not None
    return [
        record.content
        for number in segment_numbers(folder)
        for record in parse(segment_path(folder, number).read_bytes(), number, 0, final=True).records
    ]


def rows(outbox: Outbox) -> list[float]:
    return [content.step for content in contents(outbox) if isinstance(content, Row)]


def refusing(monkeypatch: pytest.MonkeyPatch, outbox: Outbox, over: int = 0) -> None:
    """Every write of more than `over` bytes to a spool fails."""
    folder = outbox.stream_folder
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(folder)) and len(data) > over:
            raise OSError(28, "no space")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)


def test_records_wait_in_order_while_the_spool_refuses(
    new_outbox: Callable[..., Outbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "RETRY_S", 0.0)
    outbox = new_outbox()
    put(outbox, 0)
    with monkeypatch.context() as context:
        refusing(context, outbox)
        for seq in range(1, 50):
            put(outbox, seq)
    put(outbox, 50)
    assert rows(outbox) == list(range(51))
    assert outbox.lost == 0


def test_memory_for_waiting_records_is_bounded_and_loss_is_told(
    new_outbox: Callable[..., Outbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "RETRY_S", 0.0)
    monkeypatch.setattr(outbox_module, "WAITING_MAX_BYTES", 1000)
    outbox = new_outbox()
    with monkeypatch.context() as context:
        refusing(context, outbox)
        for seq in range(100):
            put(outbox, seq)
    put(outbox, 100)
    found = rows(outbox)
    assert found == [*range(len(found) - 1), 100]
    assert outbox.lost == 101 - len(found) > 0
    assert Mark in {type(content) for content in contents(outbox)}
    marks = [content.data["rows"] for content in contents(outbox) if isinstance(content, Mark)]
    assert marks == [outbox.lost]


def test_a_loss_told_while_a_row_waits_takes_nothing_from_it(
    new_outbox: Callable[..., Outbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk with its last block left: the small mark fits where the row before it did not."""
    monkeypatch.setattr(outbox_module, "RETRY_S", 0.0)
    outbox = new_outbox()
    put(outbox, 0)
    with monkeypatch.context() as context:
        refusing(context, outbox, over=300)
        put(outbox, 1, 500)
        put(outbox, 2, 500)
        outbox.lose("checkpoint", "checkpoint_5.pt", "no room")
    put(outbox, 3)
    assert rows(outbox) == [0, 1, 2, 3]
    told = [content.data["others"] for content in contents(outbox) if isinstance(content, Mark)]
    assert (outbox.lost, told) == (0, [1])


def test_losses_are_told_once_where_a_run_goes_on_in_a_new_stream(
    new_outbox: Callable[..., Outbox], places: Places
) -> None:
    outbox = new_outbox()
    put(outbox, 0)
    with outbox.lock:
        outbox._lose([Loss(ROW, "", "the spool is full")] * 5)
    assert outbox.go_on(lambda old: Continuation(rows=None, staged="", abandoned="a", after=(old,)))
    assert len(marks(places)) == 1
    assert [fields["lost"] for fields in openings(places)] == [0, 0]


@pytest.mark.parametrize("period", [2, 3, 5, 7])
@pytest.mark.parametrize("after", [True, False])
def test_waiting_records_are_written_once_under_exceptions(
    period: int, after: bool, new_outbox: Callable[..., Outbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "RETRY_S", 0.0)
    outbox = new_outbox()
    with monkeypatch.context() as context:
        refusing(context, outbox)
        for seq in range(40):
            put(outbox, seq)
    real, count = os.write, [0]

    def interrupted(descriptor: int, data: bytes) -> int:
        count[0] += 1
        bad = count[0] % period == 0
        if bad and not after:
            raise BoomError
        written = real(descriptor, data)
        if bad:
            raise BoomError
        return written

    with monkeypatch.context() as context:
        context.setattr(os, "write", interrupted)
        for _ in range(200):
            try:
                outbox.flush(0)
            except BoomError:
                continue
    outbox.flush(0)
    assert rows(outbox) == list(range(40))


def test_a_full_spool_counts_and_takes_the_last_word(
    new_outbox: Callable[..., Outbox], places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_module, "CHECK_BYTES", 100)
    monkeypatch.setattr(outbox_module, "FULL_RECHECK_S", 0.0)
    outbox = new_outbox(spool_max_bytes=1 << 24)
    ballast = places.spool / stream_names(places.spool)[0] / "ballast"
    ballast.write_bytes(b"")
    os.truncate(ballast, 1 << 25)
    monkeypatch.setattr(outbox_module, "SEND_INTERVAL_S", 0.0)
    outbox._check_quota(count=True)
    for seq in range(20):
        put(outbox, seq)
    assert outbox.lost == 20
    folder = outbox.stream_folder
    outbox.close("finished", "")
    assert folder is not None
    data = segment_path(folder, 1).read_bytes()
    *_, mark, last = (record.content for record in parse(data, 1, 0, final=True).records)
    assert isinstance(mark, Mark)
    assert mark.data["rows"] == 20
    assert isinstance(last, Close)


@pytest.mark.parametrize("size", [60, 250, 1000, 4000])
@pytest.mark.parametrize("pace", ["spread", "flood"])
def test_the_limit_of_the_spool_holds_for_rows_of_any_size(
    size: int, pace: str, new_outbox: Callable[..., Outbox], places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment, limit = 1 << 18, 1 << 20
    monkeypatch.setattr(segment_writer_module, "SEGMENT_MAX_BYTES", segment)
    monkeypatch.setattr(quota_module, "CHECK_BYTES", segment >> 3)
    outbox = new_outbox(spool_max_bytes=limit)
    now, seq = 1e9, 0
    while not outbox.lost and seq * size < 3 * limit:
        now += 0.02 if pace == "spread" else size * 1e-7  # each row is sent, or 100 kB at once
        outbox.put(FrameKind.ROW, pack([seq, 1.0, {"x": "y" * (size - seq % 7)}]), now, 1)
        seq += 1
    assert limit - segment < spool_bytes(places.spool) <= limit
    assert outbox.lost == 1


def blob(outbox: Outbox, size: int) -> bool:
    """Offer a payload as the recorders do: look for room, write, send the job, take it back if refused."""
    folder = outbox.blobs_folder
    if folder is None or outbox.blob_room < size:
        return False
    path = folder / os.urandom(8).hex()
    path.write_bytes(bytes(size))
    if not outbox.job("figure", {"blob": path.name}):
        path.unlink()
        return False
    return True


def test_a_run_that_floods_takes_no_rows_from_another_one(
    new_outbox: Callable[..., Outbox], places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    limit = 16 << 20
    flood, media, calm = (new_outbox(spool_max_bytes=limit) for _ in range(3))
    refused = {"blob": 0, "row": 0, "histogram": 0}
    for seq in range(300):
        refused["blob"] += not blob(media, 300_000)
        refused["histogram"] += not media.put(FrameKind.EVENT, pack([bytes(50_000)]), float(seq))
        assert media.put(FrameKind.ROW, pack([seq, 1.0, {}]), float(seq), 1), "rows are the last to go"
        refused["row"] += not flood.put(FrameKind.ROW, pack([seq, 1.0, {"x": "y" * 100_000}]), float(seq), 1)
        assert calm.put(FrameKind.ROW, pack([seq, 1.0, {}]), float(seq), 1)
        assert spool_bytes(places.spool) <= limit
    assert min(refused.values()) > 0
    assert flood.lost == refused["row"]
    assert (media.lost, media.lost_others) == (0, refused["histogram"]), "a refused payload is its caller's"
    assert {loss.kind for loss in media.losses} == {"TensorBoard event"}
    assert (calm.lost, calm.lost_others) == (0, 0)
    assert rows(calm) == list(range(300))
    assert caplog.text.count("are being lost") == 2, "once a minute from each"


@pytest.mark.parametrize("end", ["close", "release"])
def test_rows_that_still_wait_at_the_end_are_counted_and_told(
    end: str,
    new_outbox: Callable[..., Outbox],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    outbox = new_outbox()
    put(outbox, 0)
    found = len(contents(outbox))
    folder = outbox.stream_folder
    assert folder is not None
    with monkeypatch.context() as context:
        refusing(context, outbox, over=500)
        for seq in range(1, 6):
            put(outbox, seq, size=1000)
        assert outbox.lost == 0
        if end == "close":
            outbox.close("finished", "")
        else:
            outbox.release()
    assert outbox.lost == 5
    assert "rows are being lost (5 so far)" in caplog.text
    data = segment_path(folder, 1).read_bytes()
    mark, *rest = [record.content for record in parse(data, 1, 0, final=True).records][found:]
    assert isinstance(mark, Mark)
    assert mark.data["rows"] == 5
    assert [type(content) for content in rest] == ([Close] if end == "close" else [])


def test_the_closing_record_is_written_though_the_last_rows_filled_the_spool(
    new_outbox: Callable[..., Outbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = new_outbox(spool_max_bytes=1 << 20)
    with monkeypatch.context() as context:
        refusing(context, outbox)
        for seq in range(3):
            put(outbox, seq, size=500_000)
    folder = outbox.stream_folder
    assert folder is not None
    outbox.close("finished", "")
    numbers = segment_numbers(folder)
    data = [parse(segment_path(folder, number).read_bytes(), number, 0, final=True) for number in numbers]
    assert [type(record.content) for part in data for record in part.records][-1] is Close


def test_the_end_on_a_disk_that_takes_nothing(
    new_outbox: Callable[..., Outbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = new_outbox()
    with monkeypatch.context() as context:
        refusing(context, outbox)
        for seq in range(5):
            put(outbox, seq)
        outbox.close("finished", "")
    assert outbox.lost == 5, "the closing frame is no record"


def test_space_that_comes_back_is_used_and_the_loss_reported(
    new_outbox: Callable[..., Outbox], places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "FULL_RECHECK_S", 0.0)
    outbox = new_outbox(spool_max_bytes=1 << 24)
    ballast = places.spool / stream_names(places.spool)[0] / "ballast"
    ballast.write_bytes(b"")
    os.truncate(ballast, 1 << 25)
    outbox._check_quota(count=True)
    put(outbox, 0)
    ballast.unlink()
    put(outbox, 1)
    put(outbox, 2)
    assert rows(outbox) == [1, 2]
    assert [content.data["rows"] for content in contents(outbox) if isinstance(content, Mark)] == [1]


def test_records_of_a_forked_child_are_its_own(new_outbox: Callable[..., Outbox]) -> None:
    outbox = new_outbox()
    put(outbox, 0)

    def log_in_child() -> bool:
        put(outbox, 1)
        return rows(outbox) == [1]

    assert in_forked_child(log_in_child)
    put(outbox, 2)
    assert rows(outbox) == [0, 2]


@pytest.mark.slow
def test_flush_is_not_true_for_rows_whose_spool_was_removed(
    new_outbox: Callable[..., Outbox], new_agent: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    outbox = new_outbox()
    put(outbox, 0)
    folder = outbox.stream_folder
    assert folder is not None
    shutil.rmtree(folder)
    new_agent().start()
    assert outbox.flush(60) is False
    assert str(folder) in caplog.text


@pytest.mark.parametrize("autostart", [False, True])
def test_flush_is_false_where_the_state_folder_is_closed_to_the_process(
    autostart: bool, places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    """As after setuid; that the spool cannot be looked at does not say that it is gone."""
    stop_autostart(places)
    outbox = Outbox(places, bare_opening(), AgentConfig(autostart=autostart))

    def without_rights() -> bool:
        put(outbox, 0)
        places.state.chmod(0)
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        return outbox.flush(0.1) is False and "is gone" not in caplog.text

    try:
        assert in_forked_child(without_rights)
    finally:
        places.state.chmod(0o700)
        outbox.release()


LIMITED = """
import resource, sys
from rla_client import logger
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
logger.configure(sys.argv[1], ["csv"])
for step in range(5000):
    logger.record_tabular("step", step)
    logger.record_tabular("text", "x" * (1000 if step != 2500 else int(sys.argv[3])))
    logger.dump_tabular()
logger.reset()
"""


@pytest.mark.parametrize("limit", [64 << 10, 1 << 20])
def test_a_limit_of_a_files_size_makes_shorter_segments(limit: int, places: Places, tmp_path: Path) -> None:
    """Only a record that fits into no file is lost, and counted."""
    stop_autostart(places)
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "run"), str(limit), str(limit + 1)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "rows are being lost (1 so far)" in done.stderr
    assert [row.values["step"] for row in spooled_rows(places)] == [n for n in range(5000) if n != 2500]
    assert marks(places)["lost"]["rows"] == 1


TOO_MUCH = """
import sys
from rla_client import exp_manager, logger
config = {"LOG_USED": ["csv", "log"], "AGENT": {"spool_max_bytes": 16 << 20, "autostart": False}}
exp_manager.configure("t", rla_config=config, data_root=sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen()
for step in range(200):
    logger.info("x" * 100_000)
print("ready", flush=True)
sys.stdin.readline()
print(exp_manager.run.outbox.lost_others, [exp_manager.flush(60), exp_manager.flush(60)], flush=True)
outbox = exp_manager.run.outbox
(outbox.blobs_folder / "a").write_bytes(b"no figure")
outbox.job("figure", {"name": "a.png", "format": "png", "cover": False, "blob": "a"})
print([exp_manager.flush_rows(60), exp_manager.flush(60), logger.flush(60)], flush=True)
"""


def test_a_flush_says_what_was_lost_or_could_not_be_kept(
    places: Places, new_agent: Any, tmp_path: Path
) -> None:
    """Once each: a spool that was full without an agent, and a figure that is none."""
    places.stopped_marker.touch()
    (tmp_path / "data").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", TOO_MUCH, tmp_path / "data"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert any(line == "ready\n" for line in process.stdout)
    places.stopped_marker.unlink()
    new_agent().start()
    output, errors = process.communicate("\n", timeout=120)
    said = [line for line in output.splitlines() if line.endswith("]")]
    assert int(said[0].split(" ")[0]) > 0, output
    assert [line[line.index("[") :] for line in said] == ["[False, True]", "[True, False, True]"], output
    assert "could not be kept" in errors
