"""What console.txt keeps of a command's output."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from rla_agent.command.wrapped_command.console import ConsoleKeeper


@pytest.mark.parametrize("placed", ["before", "after"])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_console_keeps_begin_and_end(tmp_path: Path, placed: str, chunk: int) -> None:
    text = b"".join(b"%04d\n" % number for number in range(400))
    (tmp_path / "log").mkdir()
    (tmp_path / "log2").mkdir()
    keeper = ConsoleKeeper(tmp_path, 100)
    for at in range(0, len(text), chunk):
        if (at >= 500) == (placed == "after"):
            keeper.place(str(tmp_path), str(tmp_path / "log"))
        keeper.add(text[at : at + chunk])
    keeper.place(str(tmp_path), str(tmp_path / "log"))
    keeper.place(str(tmp_path), str(tmp_path / "log2"))
    keeper.finish()
    kept = (tmp_path / "log" / "console.txt").read_bytes()
    assert kept == text[:50] + b"\n[... 1900 bytes left out ...]\n" + text[-50:]
    assert (tmp_path / "log2" / "console.txt").read_bytes() == kept
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["log", "log2"]


def test_a_short_console_is_whole(tmp_path: Path) -> None:
    for limit, kept in ((100, b"x" * 80), (80, b"x" * 80), (0, None)):
        log = tmp_path / f"log{limit}"
        log.mkdir()
        keeper = ConsoleKeeper(tmp_path, limit)
        keeper.add(b"x" * 60)
        keeper.add(b"x" * 20)
        keeper.place(str(tmp_path), str(log))
        keeper.finish()
        assert ((log / "console.txt").read_bytes() if kept else None) == kept
        assert kept is not None or not (log / "console.txt").exists()


def test_a_console_on_a_full_disk_tells_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    keeper = ConsoleKeeper(tmp_path, 1000)
    keeper.place(str(tmp_path), str(tmp_path / "log"))
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit, text in ((100, b"a" * 300), (120, b"b" * 50), (former[0], b"c" * 10), (former[0], b"d" * 300)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, former[1]))
        keeper.add(text)
    keeper.finish()
    kept = (tmp_path / "log" / "console.txt").read_bytes()
    note = b"\n[... 250 bytes left out: they could not be written ...]\n"
    assert kept == b"a" * 100 + note + b"c" * 10 + b"d" * 300


def test_a_console_file_that_is_there_is_not_touched(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (tmp_path / "other").write_text("mine")
    (log / "console.txt").symlink_to(tmp_path / "other")
    keeper = ConsoleKeeper(tmp_path, 100)
    keeper.add(b"theirs")
    keeper.place(str(tmp_path), str(log))
    keeper.finish()
    assert (tmp_path / "other").read_text() == "mine"
