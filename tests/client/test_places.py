"""Where state and sockets lie, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla_client.errors import PlaceError
from rla_client.places import Places, find_places, make_private, network_file_system


def test_variables_say_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("RLA_RUNTIME_DIR", str(tmp_path / "r"))
    assert find_places() == Places(tmp_path / "s", tmp_path / "r")
    assert not (tmp_path / "s").exists(), "looking creates nothing"


def test_two_state_folders_never_share_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RLA_RUNTIME_DIR", raising=False)
    found = []
    for name in ("a", "b"):
        monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / name))
        found.append(find_places().runtime)
    assert found[0] != found[1]


def test_folders_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_links_files_and_other_owners_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    with pytest.raises(PlaceError, match="link or a file"):
        make_private(tmp_path / "link")
    with pytest.raises(PlaceError):
        make_private(tmp_path / "file")
    if os.getuid() == 0:
        os.chown(tmp_path / "real", 12345, 12345)
        with pytest.raises(PlaceError, match="belongs to uid 12345"):
            make_private(tmp_path / "real")


def test_a_local_disk_is_no_network(tmp_path: Path) -> None:
    assert network_file_system(tmp_path / "not" / "there") is None
