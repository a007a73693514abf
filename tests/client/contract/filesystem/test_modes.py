"""As open as the folder around it, never more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.modes import file_mode, folder_mode, make_folder, open_within, umask


@pytest.mark.parametrize(
    ("folder", "file", "below"),
    [
        (0o700, 0o600, 0o700),
        (0o750, 0o640, 0o750),
        (0o755, 0o644, 0o755),
        (0o775, 0o664, 0o775),
        (0o2770, 0o660, 0o2770),
        (0o1777, 0o644, 0o755),
    ],
)
def test_what_is_made_in_a_folder_is_as_open_as_that(
    tmp_path: Path, folder: int, file: int, below: int
) -> None:
    """With the agent's umask; setgid is what the system hands on."""
    tmp_path.chmod(folder)
    before = os.umask(0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        os.close(open_within("f", os.O_RDWR, descriptor))
        assert make_folder("d", descriptor)
        assert not make_folder("d", descriptor)
        write_atomic(tmp_path / "g", b"", mode=file_mode(tmp_path))
    finally:
        os.umask(before)
        os.close(descriptor)
        tmp_path.chmod(0o700)
    assert (file_mode(tmp_path), folder_mode(tmp_path)) == (0o600, 0o700)
    assert [(tmp_path / name).stat().st_mode & 0o7777 for name in "fgd"] == [file, file, below]


def test_a_file_that_is_there_is_opened_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    (tmp_path / "f").chmod(0o640)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    os.close(open_within("f", os.O_RDWR, descriptor))
    os.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"1"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_asking_for_the_umask_changes_nothing_for_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda _: pytest.fail("it was set"))
            assert umask() == 0o027
    finally:
        os.umask(before)
