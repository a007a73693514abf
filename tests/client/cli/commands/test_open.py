"""`rla open`: the folder is printed; a window opens where there is a screen."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.waiting import wait_until

MakeRun = Callable[..., str]
Rla = Callable[..., subprocess.CompletedProcess[str]]


def test_the_folder_of_each_part_is_printed(rla: Rla, root: Path, make_run: MakeRun) -> None:
    index = make_run()
    where = ("-d", str(root))
    for part, kind in (("folder", "log"), ("code", "code"), ("results", "results")):
        assert rla("open", "@last", part, *where).stdout == f"{root.resolve()}/{kind}/task/{index}\n"
    make_run(number=1, kinds=("log",))
    lacking = rla("open", "@last", "code", *where)
    assert (lacking.returncode, "has no code" in lacking.stderr) == (1, True)
    assert "hint: rla open @last code" in rla("open", "code", *where).stderr


def test_a_window_opens_on_a_screen_but_not_over_ssh(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    make_run()
    tool, told = tmp_path / "xdg-open", tmp_path / "told"
    tool.write_text(f'#!/bin/sh\necho "$1" >> {told}\n')
    tool.chmod(0o755)
    seen = {"DISPLAY": ":0", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for over_ssh in (True, False):
        env = {**os.environ, **seen} | ({"SSH_CONNECTION": "1 2 3 4"} if over_ssh else {})
        if not over_ssh:
            env.pop("SSH_CONNECTION", None)
        parent, child = pty.openpty()
        words = [sys.executable, "-m", "rla_client.cli.app", "open", "-d", str(root)]
        assert subprocess.run(words, env=env, stdout=child, check=False).returncode == 0
        os.close(child)
        os.close(parent)
        if over_ssh:
            assert not told.exists()
    wait_until(lambda: told.read_text().endswith("\n"), what="the folder that the window shows")
    assert "/log/task/" in told.read_text()
