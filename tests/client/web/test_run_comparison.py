"""Differences between two runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.one_run import TABLE, name
from support.waiting import wait_until

if TYPE_CHECKING:
    from support.page_lab import PageServer
    from support.written_runs import MakeRun


@pytest.mark.slow
def test_differences(root: Path, make_run: MakeRun, server: PageServer, index: str) -> None:
    server.ask("run", {"run": name(index)})  # so the server has looked, and has not seen the second run
    other = make_run(number=1)
    found = server.ask("difference", {"run": name(index), "other": name(other)})
    assert found["sections"]["hyper-parameters"] == [["seed", 0, 1]]
    assert found["lines"][-3:] == ["-seed = 0", "+seed = 1", ""]

    def others() -> list[str]:
        return [path for path, _ in server.ask("others", {"run": name(index), "text": "LR=0.1"})]

    wait_until(lambda: others() == [name(other)], what="the list to have the new run")


def test_differences_read_no_links_and_no_large_files(
    root: Path, make_run: MakeRun, server: PageServer, index: str, tmp_path: Path
) -> None:
    other = make_run(number=1)
    (tmp_path / "secret").write_text("s3cret\n")
    folders = [root / "code" / TABLE / one for one in (index, other)]
    (folders[0] / "link.py").symlink_to(tmp_path / "secret")
    os.mkfifo(folders[1] / "pipe.py")
    for number, folder in enumerate(folders):
        (folder / "large.py").touch()
        os.truncate(folder / "large.py", (5 << 30) + number)
    found = server.ask("difference", {"run": name(index), "other": name(other)})
    assert "files differ: large.py" in found["lines"]
    assert "s3cret" not in json.dumps(found)


def test_no_code_and_archives(root: Path, make_run: MakeRun, server: PageServer, index: str) -> None:
    other = make_run(number=1)
    folder = root / "code" / TABLE / other
    (folder / "train.py").unlink()
    (folder / "launch_manifest.json").write_text("{}")
    found = server.ask("difference", {"run": name(index), "other": name(other)})
    assert (found["without"], found["archives"], found["lines"]) == ([name(other)], [name(other)], [])
