"""`rla init`. The function `rla_client.init` is tested with the manager."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rla_client.config import Config, load_config, template_text
from rla_client.database.cli_init import ignore, set_up
from rla_client.errors import ArgumentError


def test_a_folder_becomes_a_project(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.pyc")
    done = set_up(tmp_path)
    assert (tmp_path / "rla_config.yaml").read_text() == template_text()
    assert load_config(tmp_path / "rla_config.yaml").log_used == Config().log_used
    assert (tmp_path / ".gitignore").read_text().splitlines() == [
        "*.pyc",
        "# runs and their data (rla)",
        "/data/",
    ]
    assert len(done) == 2


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").write_text("mine")
    with pytest.raises(ArgumentError, match="was not touched"):
        set_up(tmp_path)
    assert (tmp_path / "rla_config.yaml").read_text() == "mine"
    assert not (tmp_path / ".gitignore").exists()
    with pytest.raises(ArgumentError, match="no folder"):
        set_up(tmp_path / "none")


def test_lines_are_added_once(tmp_path: Path) -> None:
    path = tmp_path / ".gitignore"
    assert ignore(path, ["/data/"]) == ["/data/"]
    assert ignore(path, ["/data/"]) == []
    path.write_text("data\n")
    assert ignore(path, ["/data/"]) == [], "the user's own way to say it"


def test_the_command(tmp_path: Path) -> None:
    code = (
        "import typer; from rla_client.database.cli_init import register; "
        "app = typer.Typer(); register(app); app.command('x')(lambda: None); app()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "init", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f'rla_client.init("{tmp_path.name}", config=args' in done.stdout
    assert (tmp_path / "rla_config.yaml").exists()
