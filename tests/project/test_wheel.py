"""The wheel carries what the packages need beside their code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not (ROOT / "LICENSE").exists(), reason="no checkout: the installed wheel is tested")
def test_wheel_has_template_units_and_types(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=400,
    )
    (wheel,) = tmp_path.glob("rla_agent-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        template = archive.read("rla_client/data/rla_config.yaml")
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        scripts = archive.read(entry_points).decode()
    assert template == (ROOT / "rla_config.yaml").read_bytes()
    units = {f"rla_agent/data/systemd/{path.name}" for path in (ROOT / "systemd").iterdir()}
    assert units
    assert units <= names
    assert {"rla_client/py.typed", "rla_agent/py.typed"} <= names
    assert "rla-agent = rla_agent.command.app:main" in scripts
    assert "rla = rla_client.cli.app:main" in scripts
    assert not [name for name in names if name.startswith("tests/")]
