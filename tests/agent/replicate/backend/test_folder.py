"""What a master's folder says of its faults."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rla_agent.replicate.backend import folder
from rla_agent.replicate.backend.errors import DeniedError, FullError
from rla_agent.replicate.backend.folder import FolderSession


@pytest.mark.parametrize(("all_of_it", "kind"), [(False, DeniedError), (True, FullError)])
def test_a_readonly_disk_below_the_master_holds_up_what_is_on_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, all_of_it: bool, kind: type[Exception]
) -> None:
    """All other items of the database waited, too, as for a full disk."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    session = FolderSession(str(tmp_path))
    (tmp_path / "x").write_bytes(b"x")
    monkeypatch.setattr(os, "unlink", refused)
    monkeypatch.setattr(folder, "_is_readonly", lambda _: all_of_it)
    with pytest.raises(kind, match="Read-only file system"):
        session.remove(b"x")


def test_a_disk_that_may_be_written_is_no_readonly_one(tmp_path: Path) -> None:
    assert not folder._is_readonly(os.fsencode(tmp_path))
    assert folder._is_readonly(b"/sys/kernel" if os.statvfs("/sys").f_flag & os.ST_RDONLY else b"/no/such")
