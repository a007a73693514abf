"""Findings of `rla-agent doctor` about data roots."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.problem import Finding

REPOSITORY = Path(__file__).resolve().parents[4]


@pytest.mark.slow
def test_data_root(
    agent: Any,
    look: Callable[..., dict[str, Finding]],
    client: Callable[[], subprocess.Popen[str]],
    tmp_path: Path,
    wait_until: Callable[..., Any],
) -> None:
    client()
    wait_until(lambda: agent.status()["runs"])
    os.rename(tmp_path / "data", tmp_path / "away")
    assert "root-missing" in look()
    os.rename(tmp_path / "away", tmp_path / "data")
    assert "root-missing" not in look()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount")
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("ro,size=200m", {"root-permissions"}),
        ("size=4m", {"root-space"}),
        ("size=200m,nr_inodes=500", {"root-space"}),
        ("size=200m", set()),
    ],
)
def test_data_root_full_or_read_only(tmp_path: Path, options: str, names: set[str]) -> None:
    script = (
        "import sys\nfrom rla_agent.service.doctor.data_roots import check_roots\n"
        "from rla_agent.service.doctor.surroundings import Surroundings\n"
        "from rla_client.contract.agent.places import find_places\n"
        "around = Surroundings(find_places(), status={'runs': [{'root': sys.argv[1], 'live': True}]})\n"
        "print(*(finding.name for finding in check_roots(around)))"
    )
    command = f'mount -t tmpfs -o {options} none {tmp_path} && {sys.executable} -c "$0" {tmp_path}'
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, script],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert set(done.stdout.split()) == names, done
