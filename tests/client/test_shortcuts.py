"""`rla init`, `rla_client.init` and `rla_client.log`."""

from __future__ import annotations

import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rla_client
from rla_client import exp_manager
from rla_client.cli.launch import ignore, set_up, snippet_of
from rla_client.config.schema import Config, load_config, template_text
from rla_client.contract.errors import ArgumentError


def test_a_folder_becomes_a_project(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.pyc")
    done = set_up(tmp_path)
    assert (tmp_path / "rla_config.yaml").read_text() == template_text()
    assert load_config(tmp_path / "rla_config.yaml").log_used == Config().log_used
    assert (tmp_path / ".gitignore").read_text().splitlines() == [
        "*.pyc",
        "# runs and their data (rla)",
        "/data/",
        "/plot.png",
    ]
    assert len(done) == 2


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").write_text("mine")
    with pytest.raises(ArgumentError, match="was not touched"):
        set_up(tmp_path)
    assert (tmp_path / "rla_config.yaml").read_text() == "mine"
    assert not (tmp_path / ".gitignore").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="is a file, not a folder"):
        set_up(tmp_path / "file")


def test_a_project_gets_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "project"
    assert set_up(folder)[0] == f"made the folder {folder}"
    assert (folder / "rla_config.yaml").exists()


def test_lines_are_added_once(tmp_path: Path) -> None:
    path = tmp_path / ".gitignore"
    assert ignore(path, ["/data/"]) == ["/data/"]
    assert ignore(path, ["/data/"]) == []
    path.write_text("data\n")
    assert ignore(path, ["/data/"]) == [], "the user's own way to say it"


def test_the_command(tmp_path: Path) -> None:
    code = (
        "import typer; from rla_client.cli.launch import register; "
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


@pytest.mark.usefixtures("fresh_manager")
@pytest.mark.parametrize("data", ["data", "data/", "my runs"])
def test_what_init_tells_to_add_records_below_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    project = tmp_path / 'the "project"'
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.delenv("RLA_DATA_ROOT", raising=False)
    told = snippet_of(Path(), data)
    lines = [line.strip() for line in told.splitlines() if line.startswith("    ")]
    names = {"args": {"seed": 1}, "step": 3, "loss": 0.5}
    exec("\n".join(lines), names)
    assert exp_manager.log_dir is not None
    assert Path(exp_manager.log_dir).is_relative_to(project / data / "log")
    assert ("--data-root 'my runs'" in told) is (data == "my runs")


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
    assert manager.run is exp_manager.run is not None
    assert str(manager.log_dir).startswith(str(tmp_path / "code" / "data" / "log" / "cartpole"))
    assert manager.hyper_param == {"lr": 0.1, "seed": 1}
    assert manager.info == "&seed=1"
    manager.close()
    rla_client.init("cartpole", config=Args(seed=2), track=["seed"])
    assert exp_manager.info == "&seed=2", "nothing is left from the former one"
    assert manager.info == "&seed=1" and manager.run is None, "the handle is that of its run"


@pytest.mark.usefixtures("fresh_manager")
def test_init_without_a_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLA_DATA_ROOT", str(tmp_path / "elsewhere"))
    manager = rla_client.init("t", config={"a": 1}, code_root=tmp_path / "code")
    assert str(manager.log_dir).startswith(str(tmp_path / "elsewhere"))
    assert manager.config is not None
    assert manager.config.log_used == ("stdout", "log", "tensorboard", "csv")


def test_a_mistyped_argument_of_init_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"init\(\) got .* 'confg'; did you mean 'config'\?"):
        rla_client.init("task", data_root=tmp_path, confg={"lr": 1})
    with pytest.raises(TypeError, match=r"init\(\) got an unexpected argument 'colour'$"):
        rla_client.init("task", data_root=tmp_path, colour="red")


@pytest.mark.usefixtures("fresh_manager")
def test_init_takes_every_kind_of_config(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    from rla_client.shortcuts import to_parameters

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


@pytest.fixture(name="rows")
def rows_fixture(tmp_path: Path) -> Iterator[list[dict[str, Any]]]:
    """The rows of a run that is open."""
    seen: list[dict[str, Any]] = []
    manager = rla_client.init(
        "t",
        rla_config={"LOG_USED": ["csv"]},
        data_root=tmp_path / "data",
        code_root=tmp_path / "code",
        log_callback_fn=seen.append,
    )
    yield seen
    manager.close()


@pytest.mark.usefixtures("fresh_manager")
def test_log_writes_a_row_a_call(rows: list[dict[str, Any]]) -> None:
    row = rla_client.log({"loss": 0.5, "perf": {"return": 1, "eval": {"return": 2}}}, step=3)
    assert without_time(row) == {"loss": 0.5, "perf/return": 1, "perf/eval/return": 2, "time-step": 3}
    rla_client.log({"loss": 0.25}, 4)
    rla_client.log({"loss": 0.125})
    assert rla_client.log({}) == {}
    assert [row["time-step"] for row in rows] == [3, 4, 4], "the clock stands as it was set"


@pytest.mark.usefixtures("fresh_manager")
def test_log_counts_calls_as_long_as_nobody_sets_the_clock(rows: list[dict[str, Any]]) -> None:
    for _ in range(2):
        rla_client.log({"a": 1})
    rla_client.logger.record_tabular("b", 2)
    rla_client.log({})
    rla_client.time_step_holder.set_time(10)
    rla_client.log({"a": 1})
    assert [row["time-step"] for row in rows] == [0, 1, 2, 10]
    assert rows[2]["b"] == 2, "what was recorded before is part of the row"


@pytest.mark.usefixtures("fresh_manager")
def test_log_refuses_at_once_and_writes_nothing(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ArgumentError, match=r"log takes a dict of values, e\.g\."):
        rla_client.log("loss 0.5")  # type: ignore[arg-type]
    for step in ("one", float("nan"), float("-inf")):
        with pytest.raises(ArgumentError, match="a time-step is a finite number"):
            rla_client.log({"loss": 0.5}, step=step)  # type: ignore[arg-type]
    assert rla_client.time_step_holder.get_time() == 0
    assert rla_client.logger.getkvs() == {}
    assert rows == []


@pytest.mark.usefixtures("fresh_manager")
def test_rows_of_two_threads_do_not_mix(rows: list[dict[str, Any]]) -> None:
    def write(name: str) -> None:
        for number in range(200):
            rla_client.log({f"{name}/x": number, f"{name}/y": number}, step=number)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows) == 400
    assert {tuple(sorted(without_time(row))) for row in rows} == {
        ("a/x", "a/y", "time-step"),
        ("b/x", "b/y", "time-step"),
    }
    for row in rows:
        assert set(without_time(row).values()) == {row["time-step"]}


def without_time(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "timestamp"}
