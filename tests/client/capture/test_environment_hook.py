from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rla_client.capture.environment_hook import install, remove, wanted_files


def _run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python whose site-packages, beside its own, is `folder`."""
    code = f"import site, sys; site.addsitedir({str(folder)!r}); print('_rla_capture' in sys.modules)"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def test_it_does_nothing_unless_it_is_asked_for_and_can_be_removed(tmp_path: Path) -> None:
    assert install(tmp_path)
    assert not install(tmp_path)
    assert _run(tmp_path).stdout == "False\n"
    assert _run(tmp_path, RLA_CAPTURE="all").stdout == "True\n"
    assert _run(tmp_path, RLA_CAPTURE="nonsense").stderr == ""
    (tmp_path / "rla_capture_start.py").unlink()  # half of it is gone
    assert _run(tmp_path, RLA_CAPTURE="all").stderr == ""
    assert remove(tmp_path)
    assert not remove(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_it_writes_needs_no_package_of_ours(tmp_path: Path) -> None:
    for path, content in wanted_files(tmp_path).items():
        assert b"import rla_client" not in content, path
