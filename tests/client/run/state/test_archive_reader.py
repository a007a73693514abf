"""The original's archive entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rla_client.run.state.archive_reader import read_archive


def test_an_old_archive_has_new_names_and_no_password(
    tmp_path: Path, old_pickle: Callable[..., bytes]
) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(old_pickle())
    found = read_archive((str(path),))
    assert found is not None
    assert (found["task_table_name"], found["data_root"]) == ("old_task", "/somewhere")
    assert "not to be seen" not in repr(found)
