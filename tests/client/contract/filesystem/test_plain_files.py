"""Files that anybody may have put there."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain, read_small, sqlite_address, written_bytes


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_bytes(b"12345")
    assert read_small(tmp_path / "file", 5) == b"12345"
    assert read_small(tmp_path / "link", 5, links=True) == b"12345"
    for name, links, part in [
        ("pipe", True, "a pipe"), ("device", True, "a device"), (".", True, "a folder"),
        ("link", False, "a link"), ("device", False, "a link"),
    ]:  # fmt: skip
        with pytest.raises(BrokenFileError, match=part):
            open_plain(tmp_path / name, links=links)
    with pytest.raises(BrokenFileError, match="larger than 4 bytes"):
        read_small(tmp_path / "file", 4)
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "nothing")
    os.truncate(tmp_path / "file", 1 << 30)
    with open_plain(tmp_path / "file") as file:
        assert written_bytes(file) < 1 << 20
        assert file.read(5) == b"12345"


@pytest.mark.parametrize(
    "name", ["a#b", "a?mode=memory", "100%", "%23", "a b", "ä", os.fsdecode(b"\xff"), "a&b=c;d"]
)
def test_an_sqlite_file_is_opened_whatever_its_name(tmp_path: Path, name: str) -> None:
    """And nothing is made beside it."""
    (tmp_path / name).mkdir()
    path = tmp_path / name / "x.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE t AS SELECT 7 AS x")
    before = sorted(tmp_path.rglob("*"))
    for options in ("mode=ro", "mode=ro&immutable=1"):
        with closing(sqlite3.connect(sqlite_address(path, options), uri=True)) as db:
            assert db.execute("SELECT x FROM t").fetchone() == (7,)
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                db.execute("DELETE FROM t")
    path.unlink()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        sqlite3.connect(sqlite_address(path), uri=True)
    assert sorted(tmp_path.rglob("*")) == [one for one in before if one != path]
