"""Small whole files that come as records."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.lone import LoneStream, Side

from rla_agent.model.records import ItemFile
from rla_agent.pipeline import item_files
from rla_agent.pipeline.run_registry import RunRegistry
from rla_agent.store.agent_db import CommitChanges
from rla_client.contract.job.snapshot_footer import encode_footer
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack


@pytest.fixture
def lone(tmp_path: Path) -> LoneStream:
    return LoneStream(tmp_path)


def file_frame(name: str, number: int) -> bytes:
    return encode_frame(FrameKind.FILE, pack(["log", name, b"%d" % number]))


def test_of_several_contents_of_a_file_only_the_last_is_written(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def note(opening: Opening, file: ItemFile) -> None:
        written.append((file.path, file.content))
        keep(opening, file)

    keep = item_files.keep_item_file
    monkeypatch.setattr(item_files, "keep_item_file", note)
    with Side(lone) as side:
        for number in range(5):
            lone.writer.append(file_frame("params.pkl", number), 0)
            lone.writer.append(file_frame(f"itr_{number % 2}.pkl", number), 0)
        side.read_all()
        item_files.keep_new_files(side.stream, {}, 0.0)
        assert not side.stream.new_files
    assert written == [("itr_1.pkl", b"3"), ("params.pkl", b"4"), ("itr_0.pkl", b"4")]
    assert (lone.root / "params.pkl").read_bytes() == b"4"


def test_a_snapshot_takes_no_place_of_a_later_one(lone: LoneStream) -> None:
    """The spool was full meanwhile, so the later one was written by the training itself."""

    def content(order: int) -> bytes:
        return b"pickle" + encode_footer({"token": "0" * 16, "order": order})

    for name, there, expected in (("params.pkl", 7, 7), ("itr_1.pkl", 4, 5)):
        (lone.root / name).write_bytes(content(there))
        lone.writer.append(encode_frame(FrameKind.FILE, pack(["log", name, content(5)])), 0)
        with Side(lone) as side:
            side.read_all()
            faults: dict[str, str] = {}
            item_files.keep_new_files(side.stream, faults, 0.0)
        assert faults == {}
        assert (lone.root / name).read_bytes() == content(expected)


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Writing item files fails; root is refused nothing, so the error is put in."""

    def fail(_path: str, _content: bytes, mode: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(item_files, "write_atomic", fail)


def with_file(lone: LoneStream, side: Side, name: str = "x") -> None:
    lone.writer.append(file_frame(name, 1), 0)
    side.read_all()
    assert side.stream.new_files


def test_a_file_whose_folder_is_gone_holds_nothing_up(lone: LoneStream) -> None:
    with Side(lone) as side:
        folders = {**side.stream.opening.folders, "checkpoint": "saved"}  # which somebody removed
        side.stream.opening = side.stream.opening._replace(folders=folders)
        for file in (ItemFile("checkpoint", "x", b"1"), ItemFile("log", "y", b"2")):
            side.stream.new_files.add(file)
        item_files.keep_new_files(side.stream, side.faults, 0.0)
        assert not side.stream.new_files
        assert "x was not kept: No such file" in side.faults[f"{side.stream.name}/x"]
        assert (lone.root / "y").read_bytes() == b"2"


def test_files_wait_for_a_data_root_that_is_away(lone: LoneStream) -> None:
    with Side(lone) as side:
        with_file(lone, side)
        away = lone.root.rename(lone.root.with_name("away"))
        item_files.keep_new_files(side.stream, side.faults, 0.0)
        item_files.keep_new_files(side.stream, side.faults, 1e9)
        assert side.stream.new_files
        away.rename(lone.root)
        item_files.keep_new_files(side.stream, side.faults, 1e9)
        assert (len(side.stream.new_files), side.faults) == (0, {})
    assert (lone.root / "x").read_bytes() == b"1"


def test_files_beyond_a_turn_s_time_wait_for_the_next_one(lone: LoneStream) -> None:
    with Side(lone) as side:
        for name in ("a", "b"):
            side.stream.new_files.add(ItemFile("log", name, b"1"))
        assert item_files.keep_new_files(side.stream, side.faults, 0.0, until=0.0)
        assert (len(side.stream.new_files), side.faults) == (1, {})
        assert not item_files.keep_new_files(side.stream, side.faults, 0.0, until=0.0)
        assert not side.stream.new_files


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_where_writing_is_forbidden_a_file_is_given_up_after_a_while(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse(monkeypatch, number)
    with Side(lone) as side:
        for name, begun in (("x", 100.0), ("y", 500.0)):  # each file has its own time
            with_file(lone, side, name)
            for now in (begun, begun + item_files.REFUSED_S - 1):
                item_files.keep_new_files(side.stream, side.faults, now)
                assert len(side.stream.new_files) == 1
                assert "is not kept yet" in side.faults[f"{side.stream.name}/{name}"]
            item_files.keep_new_files(side.stream, side.faults, begun + item_files.REFUSED_S)
            assert not side.stream.new_files
            assert "was not kept" in side.faults[f"{side.stream.name}/{name}"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE])
def test_a_file_waits_for_a_disk_as_long_as_it_takes(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with Side(lone) as side:
        with_file(lone, side)
        with monkeypatch.context() as patch:
            refuse(patch, number)
            for now in (0.0, 1e9):
                item_files.keep_new_files(side.stream, side.faults, now)
                assert side.stream.new_files
                why = side.faults[f"{side.stream.name}/x"]
                assert (
                    why == f"x is not kept yet: {os.strerror(number)}: {lone.root}"
                )  # no path of a descriptor
        item_files.keep_new_files(side.stream, side.faults, 2e9)
        assert (len(side.stream.new_files), side.faults) == (0, {})


def test_faults_of_files_are_bounded_and_go_with_their_stream(lone: LoneStream) -> None:
    with Side(lone) as side:
        for number in range(100):
            side.stream.new_files.add(ItemFile("log", f"../x{number}", b""))
        item_files.keep_new_files(side.stream, side.faults, 0.0)
        assert len(side.faults) == item_files.MOST_FAULTS
        side.faults["another"] = "stays"
        item_files.drop_faults(side.faults, side.stream.name)
        assert side.faults == {"another": "stays"}


def test_rows_are_not_counted_again_after_a_restart_while_a_file_waits(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agent_takes_in() -> int:
        """One agent's life: take in what is there, commit, be killed; the rows that its record has then."""
        with Side(lone) as side:
            registry = RunRegistry()
            registry.opened(side.stream, side.database, 1.0)
            side.read_all()
            item_files.keep_new_files(side.stream, side.faults, 0.0)
            changes = CommitChanges()
            registry.follow([side.stream], [side.stream], 1.0, 1e9, changes)
            assert side.committer.commit_streams([side.stream], changes, side.faults)
            registry.stored()
            registry.validate([side.stream])
            return registry.records["r"].rows

    lone.row({"v": 1})
    assert agent_takes_in() == 1
    lone.writer.append(file_frame("x", 1), 0)
    for _ in range(10):
        lone.row({"v": 2})
    with monkeypatch.context() as patch:
        refuse(patch, errno.ENOSPC)
        assert agent_takes_in() <= 11
        assert agent_takes_in() <= 11
    assert agent_takes_in() == 11
    assert (lone.root / "x").read_bytes() == b"1"
