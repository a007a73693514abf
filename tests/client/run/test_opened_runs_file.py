"""RLA_RUN_FILE: a line for each item that is opened."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rla_client import SummaryWriter, exp_manager, logger, wrap_experiment
from rla_client.integrations import wandb

pytestmark = pytest.mark.usefixtures("fresh_manager")


@pytest.fixture(name="list_file")
def list_file_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "runs.jsonl"
    monkeypatch.setenv("RLA_RUN_FILE", str(path))
    return path


def begin(tmp_path: Path, table: str = "t", **options: Any) -> dict[str, str]:
    """Open a run; the line that is to tell of it."""
    exp_manager.configure(table, {}, tmp_path / "data", code_root=tmp_path / "code", **options)
    exp_manager.set_hyper_param(seed=1)
    exp_manager.log_files_gen()
    index = "/".join(Path(str(exp_manager.log_dir)).parts[-4:])
    root = os.path.realpath(tmp_path / "data")
    return {"data_root": root, "table": table, "index": index, "run_key": options.get("run_id", "")}


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_run_that_is_opened_has_a_line(tmp_path: Path, list_file: Path) -> None:
    first = begin(tmp_path)
    second = begin(tmp_path, "group/one", run_id='sweep-3 "é"')
    assert lines(list_file) == [first, second]
    assert list_file.stat().st_mode & 0o777 == 0o600


def test_the_data_root_is_the_real_one(
    tmp_path: Path, list_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to("disk")
    monkeypatch.chdir(tmp_path / "code")
    exp_manager.configure("t", {}, "../data", code_root=".")
    exp_manager.log_files_gen()
    assert lines(list_file)[0]["data_root"] == os.path.realpath(tmp_path / "disk")


def test_whichever_way_it_is_opened(tmp_path: Path, list_file: Path) -> None:
    SummaryWriter(comment="w").close()
    exp_manager.close()
    wandb.init(project="p").finish()
    exp_manager.close()

    @wrap_experiment(data_root=tmp_path / "data", rla_config={}, archive_launch_repo=False)
    def search(ctxt: Any) -> None:
        del ctxt

    search()
    assert len({line["index"] for line in lines(list_file)}) == 3
    assert lines(list_file)[-1]["table"] == "experiment/search"


def test_plain_folders_are_no_items(tmp_path: Path, list_file: Path) -> None:
    logger.configure(tmp_path / "plain", ["csv"])
    assert not list_file.exists()


@pytest.mark.parametrize("variable", [("RLA_MODE", "disabled"), ("RANK", "1")])
def test_who_stores_nothing_has_no_line(
    tmp_path: Path, list_file: Path, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.setenv(*variable)
    exp_manager.configure("t", {}, tmp_path / "data", code_root=tmp_path / "code")
    exp_manager.log_files_gen()
    assert not list_file.exists()


WORKERS = """
import multiprocessing, os, sys
from rla_client import exp_manager, logger

def work():
    logger.record_tabular("a", os.getpid())
    logger.dump_tabular()

if __name__ == "__main__":
    exp_manager.configure("t", {}, sys.argv[1], code_root=".")
    exp_manager.log_files_gen()
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=work)
        child.start()
        child.join()
        assert child.exitcode == 0
"""


def test_workers_of_a_run_add_nothing(tmp_path: Path, list_file: Path) -> None:
    script = tmp_path / "code" / "train.py"
    script.write_text(WORKERS)
    subprocess.run([sys.executable, str(script), str(tmp_path / "data")], cwd=script.parent, check=True)
    assert len(lines(list_file)) == 1
    assert len(list((tmp_path / "data").glob("log/t/*/*/*/*/warn.p*.txt"))) == 2, (
        "they had streams of their own"
    )


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("make", [make_pipe, make_link, Path.mkdir])
def test_what_is_no_file_is_one_warning(
    tmp_path: Path, list_file: Path, caplog: pytest.LogCaptureFixture, make: Any
) -> None:
    make(list_file)
    logging.getLogger("rla_client").disabled = False
    for _ in range(2):
        begin(tmp_path)
    told = [record for record in caplog.records if "RLA_RUN_FILE" in record.getMessage()]
    assert len(told) == 1
    assert str(list_file) in told[0].getMessage()
    assert not (tmp_path / "elsewhere").exists()


def test_where_it_is_not_set_nothing_is_told(tmp_path: Path) -> None:
    script = (
        "import sys; from rla_client import exp_manager\n"
        "from rla_client.run import opened_runs_file\n"
        "opened_runs_file.append_line = lambda *told: sys.exit(f'{told}')\n"
        "exp_manager.configure('t', {}, sys.argv[1], code_root=sys.argv[1])\n"
        "exp_manager.log_files_gen()\n"
    )
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run([sys.executable, "-c", script, str(data)], check=True)
