"""`rla init`, and `rla_client.init`."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import pytest

import rla_client
from rla_client import exp_manager
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


@dataclass
class Args:
    lr: float = 0.1
    seed: int = 1


@pytest.mark.usefixtures("fresh_manager")
def test_init_with_everything_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "code" / "deep"
    below.mkdir()
    (tmp_path / "code" / "rla_config.yaml").write_text("LOG_USED: [csv]\nAGENT: {autostart: false}\n")
    monkeypatch.chdir(below)
    monkeypatch.delenv("RLA_DATA_ROOT", raising=False)
    manager = rla_client.init("cartpole", config=Args(), track=["seed"])
    assert manager is exp_manager
    assert str(manager.log_dir).startswith(str(tmp_path / "code" / "data" / "log" / "cartpole"))
    assert manager.hyper_param == {"lr": 0.1, "seed": 1}
    assert manager.info == "&seed=1"
    manager.close()
    rla_client.init("cartpole", config=Args(seed=2), track=["seed"])
    assert manager.info == "&seed=2", "nothing is left from the former one"


@pytest.mark.usefixtures("fresh_manager")
def test_init_without_a_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLA_DATA_ROOT", str(tmp_path / "elsewhere"))
    manager = rla_client.init("t", config={"a": 1}, code_root=tmp_path / "code")
    assert str(manager.log_dir).startswith(str(tmp_path / "elsewhere"))
    assert manager.config is not None
    assert manager.config.log_used == ("stdout", "log", "tensorboard", "csv")


@pytest.mark.usefixtures("fresh_manager")
def test_init_takes_every_kind_of_config(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    from rla_client.starting import to_parameters

    assert to_parameters(None) == {}
    assert to_parameters(Namespace(a=1)) == {"a": 1}
    assert to_parameters(Args()) == {"lr": 0.1, "seed": 1}
    config = omegaconf.OmegaConf.create({"a": {"b": 1}, "c": "${a.b}"})
    assert to_parameters(config) == {"a": {"b": 1}, "c": 1}
    for wrong in (5, "text", Args, [1]):
        with pytest.raises(ArgumentError, match="config takes"):
            to_parameters(wrong)
    with pytest.raises(ArgumentError, match="list of names"):
        rla_client.init("t", track="seed", data_root=tmp_path)
