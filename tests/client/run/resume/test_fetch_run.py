"""Fetching a run of another machine: what is raised, and what begins a new run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.spooled import stop_autostart

from rla_client.config.schema import load_config
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import FetchError, NotBroughtError
from rla_client.run.resume import fetch_run
from rla_client.run.resume.fetch_run import find_elsewhere

CONFIG = """
SEND_LOG_FILE: true
REMOTE_SETTING: {ftp_server: master.invalid, file_transfer_protocol: sftp, username: me, remote_data_root: /x}
AGENT: {autostart: false}
"""
NAME = "still being written"  # in each message about the run


def test_a_name_that_reads_like_an_error_is_none(places: Places, tmp_path: Path) -> None:
    """Without an agent `allow` begins a new run, whatever words the run's name has in it."""
    stop_autostart(places)
    path = tmp_path / "rla_config.yaml"
    path.write_text(CONFIG)
    config = load_config(path)
    assert find_elsewhere(str(tmp_path / "data"), "table", NAME, config, must=False) is None
    with pytest.raises(FetchError, match=NAME):
        find_elsewhere(str(tmp_path / "data"), "table", NAME, config, must=True)


def test_a_run_that_is_there_and_cannot_come_is_not_begun_again(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job began at 0 with `allow`: the disk had no room for the checkpoint, or that was damaged."""
    stop_autostart(places)
    path = tmp_path / "rla_config.yaml"
    path.write_text(CONFIG)

    def no_room(_question: object, what: str, *_: object, **__: object) -> None:
        raise NotBroughtError(f"{what}: no room")

    monkeypatch.setattr(fetch_run, "ask_for_fetch", no_room)
    with pytest.raises(NotBroughtError, match="comes from the master: no room"):
        find_elsewhere(str(tmp_path / "data"), "table", NAME, load_config(path), must=False)
