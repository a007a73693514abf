"""The list of databases, while another process holds its lock."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rla_agent.replicate import registry
from rla_agent.replicate.registry import ListBusyError, add, entries, folder, register
from rla_client.contract.process.locks import try_lock


def test_nobody_waits_for_ever_for_the_lock_of_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent not at all, a command for a while; it says who holds it and changes nothing."""
    monkeypatch.setattr(registry, "ADD_WAIT_S", 0.2)
    state, root, config = tmp_path / "state", tmp_path / "data", tmp_path / "rla_config.yaml"
    state.mkdir()
    root.mkdir()
    config.write_text("")
    with (folder(state) / "databases.lock").open("w") as held:
        assert try_lock(held.fileno())
        with pytest.raises(ListBusyError, match="another process holds"):
            register(state, root, config)
        with pytest.raises(ListBusyError, match=f"process {os.getpid()} holds .*kill -CONT"):
            add(state, root, config)
        assert entries(state) == []
    register(state, root, config)
    assert add(state, root, config) == entries(state)[0]


@pytest.mark.parametrize(
    "torn", ['{"version": 1, "databases": [{"data_ro', "[]", '{"databases": [{"other": 1}]}']
)
def test_a_damaged_list_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture, torn: str) -> None:
    place = folder(tmp_path)
    (place / "databases.json").write_text(torn)
    register(tmp_path, tmp_path / "data", tmp_path / "rla_config.yaml")
    assert [entry.data_root for entry in entries(tmp_path)] == [str(tmp_path / "data")]
    assert (place / "databases.json.damaged").read_text() == torn
    assert "databases.json.damaged" in caplog.text


def test_nothing_is_written_over_a_list_that_cannot_be_read_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(tmp_path, tmp_path / "first", tmp_path / "rla_config.yaml")
    before = entries(tmp_path)
    really = Path.read_bytes

    def read(path: Path) -> bytes:
        if path.name == "databases.json":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return really(path)

    with monkeypatch.context() as short:
        short.setattr(Path, "read_bytes", read)
        with pytest.raises(OSError, match="Too many open files"):
            register(tmp_path, tmp_path / "second", tmp_path / "rla_config.yaml")
    assert entries(tmp_path) == before
