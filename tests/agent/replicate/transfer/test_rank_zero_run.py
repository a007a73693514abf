"""What rank 0 told, read from the master."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
import yaml

from rla_agent.replicate.transfer import rank_zero_run
from rla_agent.replicate.transfer.rank_zero_run import read_job_file
from rla_client.contract.errors import FetchError

NAME = f"{7:024x}.json"


def ask(tmp_path: Path, name: str = NAME, since: float = 0.0) -> dict[str, object]:
    (tmp_path / "master").mkdir(exist_ok=True)
    remote = {"file_transfer_protocol": "folder", "remote_data_root": str(tmp_path / "master")}
    config = tmp_path / "rla_config.yaml"
    config.write_text(yaml.safe_dump({"SEND_LOG_FILE": True, "REMOTE_SETTING": remote}))
    return read_job_file(tmp_path / "state", {"config": str(config), "name": name, "since": since})


def put(tmp_path: Path, time: float) -> None:
    folder = tmp_path / "master" / ".rla-jobs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(json.dumps({"time": time}))


def test_it_waits_for_rank_zero(tmp_path: Path) -> None:
    put(tmp_path, 5.0)
    later = threading.Timer(0.2, put, (tmp_path, 15.0))
    later.start()
    assert ask(tmp_path, since=10.0) == {"told": {"time": 15.0}}
    later.join()


def test_a_former_jobs_file_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_run, "WAIT_S", 0.0)
    put(tmp_path, 5.0)
    assert ask(tmp_path, since=10.0) == {"told": None}


def test_what_jobs_of_long_ago_left_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_run, "WAIT_S", 0.0)
    put(tmp_path, 5.0)
    folder = tmp_path / "master" / ".rla-jobs"
    names = {f"{number:024x}.json" for number in range(3)}
    for name in (*names, "notes.txt"):
        (folder / name).write_text("{}")
        long_ago = time.time() - rank_zero_run.OLD_S - 60
        os.utime(folder / name, (long_ago, long_ago))
    assert ask(tmp_path, since=0.0) == {"told": {"time": 5.0}}
    assert {path.name for path in folder.iterdir()} == {NAME, "notes.txt"}


@pytest.mark.parametrize("name", ["../x.json", f".rla-jobs/{NAME}", f"{NAME}/", "", "A" * 24 + ".json"])
def test_no_other_file_is_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(FetchError, match="is no name of a job's file"):
        ask(tmp_path, name)
