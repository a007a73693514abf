"""Findings of `rla-agent doctor` about the disk of the state folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_agent.model.problem import Finding
from rla_client.contract.agent.places import Places
from rla_client.contract.filesystem.file_systems import network_file_system


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount")
def test_state_in_memory_and_full(places: Places, tmp_path: Path) -> None:
    """A small tmpfs, in a mount namespace of its own: volatile, then full."""
    mount = f"mount -t tmpfs -o size=4m,mode=700 none {places.state}"
    command = f"{mount} && {{0}} {sys.executable} -m rla_agent doctor --json"
    for before, expected in (
        ("", {"state-volatile"}),
        (f"head -c 4M /dev/zero > {places.state}/ballast;", {"state-volatile", "state-space"}),
    ):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", command.format(before)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        names = {finding["name"] for finding in json.loads(done.stdout)["findings"]}
        assert expected <= names, done
    assert network_file_system(places.state) is None


def test_network_file_system(
    look: Callable[..., dict[str, Finding]], monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    from rla_client.contract.filesystem import file_systems

    here = file_systems.file_system_type(places.state)
    monkeypatch.setitem(
        file_systems.NETWORK_FILE_SYSTEMS, here, "NFS"
    )  # the table alone says what is a network
    assert look()["state-network"].level == "fault"
    monkeypatch.delitem(file_systems.NETWORK_FILE_SYSTEMS, here)
    assert "state-network" not in look()
