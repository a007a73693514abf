"""Findings of `rla-agent doctor` about limits of the machine."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.problem import Finding
from rla_client.contract.agent.places import Places


def test_limits_that_an_agent_would_inherit(look: Callable[..., dict[str, Finding]], places: Places) -> None:
    command = [
        "prlimit",
        "--fsize=1000000",
        "--nofile=50",
        sys.executable,
        "-m",
        "rla_agent",
        "doctor",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = [finding for finding in json.loads(done.stdout)["findings"] if finding["name"] == "limit-agent"]
    assert "50 files" in told[0]["what"]
    assert "1000000 bytes" in told[1]["what"]
    assert "limit-agent" not in look()


@pytest.mark.slow
def test_limits_of_the_agent_that_runs(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    (told,) = agent.status()["problems"]
    assert "ulimit -f" in told["what"]
    assert look()["agent-problem"].what == told["what"]


@pytest.mark.slow
def test_file_limit(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    before = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (500, 500))
    assert "500 files" in look()["limit-files"].what
    if os.geteuid() == 0 or before[1] == 500:
        agent.restart()
        assert look() == {}


def test_watches(look: Callable[..., dict[str, Finding]], system: Path) -> None:
    path = system / "proc/sys/fs/inotify/max_user_watches"
    path.parent.mkdir(parents=True)
    path.write_text("100\n")
    assert look()["limit-watches"].level == "note"
    path.write_text("65536\n")
    assert look() == {}


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount")
def test_shared_memory(places: Places, tmp_path: Path) -> None:
    for size, expected in (("64m", True), ("512m", False)):
        command = (
            f"mount -t tmpfs -o size={size} none /dev/shm && {sys.executable} -m rla_agent doctor --json"
        )
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        names = {finding["name"] for finding in json.loads(done.stdout)["findings"]}
        assert ("limit-shm" in names) is expected, done
    del places
