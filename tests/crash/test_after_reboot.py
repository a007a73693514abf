"""What a reboot changes: device numbers, and the end of a spool that nobody had synced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.lone import LoneStream, Side

from rla_agent.outputs.data_root_presence import boot_time, same_root
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.segments import segment_path


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    lone = LoneStream(tmp_path)
    lone.writer.close()
    return Opening.from_fields({**lone.opening, "rows": 0, "lost": 0, "folders": {"log": "log"}})


def test_boot_time_lies_in_the_past(tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    assert 0 < boot_time() <= os.stat(tmp_path / "new").st_mtime


def test_a_root_on_a_renumbered_device_is_known_again(opening: Opening) -> None:
    (Path(opening.root) / "log").mkdir()
    before = opening._replace(root_device=opening.root_device + 1, opened=boot_time() - 60)
    assert same_root(opening)
    assert same_root(before)
    assert not same_root(before._replace(opened=boot_time() + 60)), "same boot: this is another file system"
    assert not same_root(before._replace(root_inode=before.root_inode + 1))


def test_without_the_item_it_is_another_root(opening: Opening) -> None:
    assert not same_root(opening._replace(root_device=opening.root_device + 1, opened=boot_time() - 60))


def test_an_output_that_lagged_behind_a_lost_spool_is_given_up(tmp_path: Path) -> None:
    """Positions are stored for each output, and a power cut takes spool bytes that one of them lacks."""
    lone = LoneStream(tmp_path)
    for _ in range(10):
        lone.row({"v": 1})
    with Side(lone) as side:
        side.read_all()
        assert side.commit()
        synced = side.stream.position.offset
        (csv,) = [output for output in side.stream.outputs if output.name == "csv"]
        for _ in range(10):
            lone.row({"v": 2})
        csv.fail(OSError("a disk that was slow, a rewrite: it takes nothing in now"))
        side.read(2)
        assert csv.position < side.stream.position
        assert side.commit()
    lone.writer.close()
    os.truncate(segment_path(lone.writer.folder, 1), synced)
    with Side(lone) as side:
        side.stream.writer_left()
        assert side.stream.lagging
        side.read_all()
        assert side.commit()
        assert not side.stream.lagging
        assert side.stream.all_durable == side.stream.position
        assert side.stream.drain_new().damaged_bytes > 0
    assert (lone.root / "progress.csv").read_text().count("\n") == 11
    assert (lone.root / "progress.json").read_text().count("\n") == 20
