from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest
from support.descriptors import open_below

from rla_client.contract.errors import LaunchError
from rla_client.launcher import folder_lock
from rla_client.launcher.folder_lock import FolderLock

HOLD = (
    "import sys; from rla_client.launcher.folder_lock import FolderLock; "
    "lock = FolderLock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
)


def test_another_process_is_named_and_ends_the_lock_with_its_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        monkeypatch.setattr(folder_lock, "DYING_S", 0.1)
        with pytest.raises(LaunchError, match=f"process {holder.pid} is writing into {tmp_path}"):
            FolderLock(str(tmp_path))
        holder.kill()
        holder.wait(60)
        FolderLock(str(tmp_path)).release()
    assert not list(tmp_path.iterdir())  # it leaves nothing


def test_a_released_lock_is_free_and_a_missing_folder_no_concern_of_it(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    assert open_below(tmp_path) != []
    lock.release()
    lock.release()
    FolderLock(str(tmp_path)).release()
    FolderLock(str(tmp_path / "nowhere")).release()
    assert open_below(tmp_path) == []


def test_where_locks_are_refused_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(9, "as NFS says of a folder")

    monkeypatch.setattr(fcntl, "flock", refuse)
    FolderLock(str(tmp_path)).release()
