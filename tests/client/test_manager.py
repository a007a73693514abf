"""exp_manager: configuration, hyper-parameters, folders, one run after another."""

from __future__ import annotations

import csv
import enum
import inspect
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from argparse import Namespace
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.spooled import files, marks, openings, rows, stop_autostart, text_of, values

import rla_client
from rla_client import exp_manager, logger, time_step_holder
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import (
    ArgumentError,
    ConfigError,
    NotConfiguredError,
    UnknownParameterError,
)
from rla_client.contract.layout import MADE_AT_ONCE
from rla_client.contract.spool.protocol import TextTarget
from rla_client.manager import ExpManager
from rla_client.run.resume.find_run import RunNotFoundError

pytestmark = pytest.mark.usefixtures("fresh_manager")
CONFIG = {"LOG_USED": ["csv", "log"], "AGENT": {"autostart": False}}


def configure(tmp_path: Path, **options: Any) -> None:
    exp_manager.configure(
        "demo", rla_config=options.pop("rla_config", CONFIG), data_root=tmp_path / "data", code_root=tmp_path / "code",  # noqa: E501
        **options,
    )  # fmt: skip


def test_a_run_has_seven_places_and_its_parameters_in_three(tmp_path: Path, places: Places) -> None:
    configure(tmp_path)
    exp_manager.set_hyper_param(lr=0.1, seed=3, net={"sizes": [64, 64]})
    exp_manager.add_record_param(["seed", "net.sizes"])
    exp_manager.log_files_gen()
    assert exp_manager.info == "&seed=3&net.sizes={64, 64}"
    index = re.compile(
        r"/demo/\d{4}/\d\d/\d\d/\d\d-\d\d-\d\d-\d{6}_(?:[\d.]+|noip)_&seed=3&net\.sizes=\{64, 64\}/$"
    )
    folders = {
        "log": exp_manager.log_dir, "results": exp_manager.results_dir, "code": exp_manager.code_dir,
        "checkpoint": exp_manager.checkpoint_dir, "hyperparameter": exp_manager.hyperparameter_dir,
        "tmp_data": exp_manager.tmp_data_dir,
    }  # fmt: skip
    for kind, folder in folders.items():
        assert folder is not None
        assert folder.startswith(f"{tmp_path}/data/{kind}/demo/")
        assert folder.endswith("/")
        assert index.search(folder)
        assert os.path.isdir(folder)
    assert exp_manager.hyparameter_dir == exp_manager.hyperparameter_dir
    assert str(exp_manager.pkl_file).startswith(f"{tmp_path}/data/archive_tester/demo/")
    assert os.path.isdir(str(exp_manager.pkl_dir))
    assert set(os.listdir(tmp_path / "data")) >= {*MADE_AT_ONCE, "archive_tester"}
    for kind in ("log", "code", "hyperparameter"):
        found = yaml.safe_load(Path(str(folders[kind]), "parameter.yaml").read_text())
        assert found == {"lr": 0.1, "seed": 3, "net": {"sizes": [64, 64]}}
    kept = [(file.kind, file.path) for file in files(places)]
    assert {
        ("log", "parameter.yaml"),
        ("code", "parameter.yaml"),
        ("hyperparameter", "parameter.yaml"),
    } <= set(kept)
    assert marks(places)["hyper_param"] == {"lr": 0.1, "seed": 3, "net": {"sizes": [64, 64]}}
    (opening,) = openings(places)
    assert opening["table"] == "demo"
    assert opening["sinks"] == ["csv", "log"]


class Kind(enum.Enum):
    FAST = "fast"


@dataclass
class Sub:
    width: int = 4


def test_parameters_that_are_not_plain_become_json(tmp_path: Path) -> None:
    configure(tmp_path)
    exp_manager.set_hyper_param(
        lr=np.float32(0.5), steps=np.int64(3), kind=Kind.FAST, where=Path("/x"), sub=Sub(), odd=object(), b=1
    )
    exp_manager.log_files_gen()
    path = Path(str(exp_manager.log_dir), "parameter.json")
    text = path.read_text()
    found = json.loads(text)
    assert found["lr"] == 0.5
    assert found["steps"] == 3
    assert found["where"] == "/x"
    assert found["sub"] == {"width": 4}
    assert found["odd"].startswith("<object object")
    assert found["kind"] in {"FAST", "fast"}
    assert list(found) == sorted(found)
    assert '\n    "b": 1' in text, "indent 4, as RLA's"


def test_tracked_parameters(tmp_path: Path) -> None:
    configure(tmp_path)
    exp_manager.set_hyper_param(a=1, opt=Namespace(lr=0.5), **{"dotted.name": 2})
    exp_manager.add_record_param(["a"])
    exp_manager.add_record_param(["opt.lr", "dotted.name", "opt.none", "a"])
    assert exp_manager.hyper_param_record == ["a=1", "opt.lr=0.5", "dotted.name=2", "a=1"]
    with pytest.raises(KeyError, match="no hyper-parameter 'nope' is set, so it cannot be tracked"):
        exp_manager.add_record_param(["nope"])
    exp_manager.set_hyper_param(learning_rate=1, seed=2, a=1, opt=Namespace(lr=0.5), **{"dotted.name": 2})
    with pytest.raises(UnknownParameterError) as caught:
        exp_manager.add_record_param(["learning_rat"])
    assert isinstance(caught.value, ArgumentError)
    assert str(caught.value) == (
        "no hyper-parameter 'learning_rat' is set, so it cannot be tracked. Did you mean 'learning_rate'? "
        "There are: a, dotted.name, learning_rate, opt, seed"
    )
    with pytest.raises(ArgumentError, match="list of names"):
        exp_manager.add_record_param("a")
    exp_manager.clear_record_param()
    assert exp_manager.hyper_param_record == []
    exp_manager.update_hyper_param("a", 9)
    exp_manager.add_record_param(["a"])
    assert exp_manager.hyper_param_record == ["a=9"]
    exp_manager.update_hyper_param("a", json.dumps)
    exp_manager.clear_record_param()
    exp_manager.add_record_param(["a"])
    assert exp_manager.hyper_param_record == ["a=json.dumps"]


@pytest.mark.parametrize("given", [None, 7])
def test_what_configure_expects(tmp_path: Path, given: object) -> None:
    with pytest.raises(ArgumentError, match=r"rla_config.*the path of your rla_config\.yaml, or a dict"):
        configure(tmp_path, rla_config=given)


def test_a_long_name_does_not_stop_the_run(tmp_path: Path) -> None:
    configure(tmp_path)
    exp_manager.set_hyper_param(text="x" * 1000)
    exp_manager.add_record_param(["text"])
    exp_manager.log_files_gen()
    folder = str(exp_manager.log_dir).rstrip("/")
    assert len(os.path.basename(folder).encode()) <= 255
    assert yaml.safe_load(Path(folder, "parameter.yaml").read_text())["text"] == "x" * 1000


def test_print_args_goes_through_backup_sorted(
    tmp_path: Path, places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(tmp_path, rla_config={**CONFIG, "LOG_USED": ["stdout", "log", "csv"]})
    exp_manager.set_hyper_param(b=2, a=[1])
    exp_manager.log_files_gen()
    capsys.readouterr()
    exp_manager.print_args()
    printed = capsys.readouterr().out
    assert "BACKUP" not in printed  # reads like a fault
    assert [line.split() for line in printed.splitlines()[1:3]] == [
        ["|", "a", "|", "[1]", "|"],
        ["|", "b", "|", "2", "|"],
    ]
    assert "[BACKUP] 0 : key: a, value: [1]\n" in text_of(places, TextTarget.LOG)
    assert (
        text_of(places, TextTarget.BACKUP)
        == "[BACKUP] 0 : key: a, value: [1]\n[BACKUP] 0 : key: b, value: 2\n"
    )


def test_older_argument_names_work_with_a_warning(tmp_path: Path) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text("LOG_USED: [csv]\nAGENT: {autostart: false}\n")
    with pytest.warns(DeprecationWarning, match="is the older name of") as caught:
        exp_manager.configure(task_name="old", private_config_path=config, log_root=str(tmp_path / "data"))
    assert sorted(str(warning.message).split()[0] for warning in caught) == [
        "log_root", "private_config_path", "task_name",
    ]  # fmt: skip
    assert exp_manager.get_task_table_name() == "old"
    assert exp_manager.project_root == str(tmp_path)
    assert exp_manager.private_config == {"LOG_USED": ["csv"], "AGENT": {"autostart": False}}
    with pytest.raises(ArgumentError, match="older name"):
        exp_manager.configure("new", config, tmp_path, task_name="old")
    with pytest.raises(TypeError, match="unexpected keyword argument 'consle'"):
        exp_manager.configure("new", config, tmp_path, consle=True)  # type: ignore[call-arg]


def test_wrong_input_is_told_in_the_users_words(tmp_path: Path) -> None:
    with pytest.raises(NotConfiguredError, match=r"exp_manager\.configure"):
        exp_manager.log_files_gen()
    with pytest.raises(ArgumentError, match="rla_config, data_root"):
        exp_manager.configure("demo")
    with pytest.raises(ArgumentError, match="code_root"):
        exp_manager.configure("demo", CONFIG | {"BACKUP_CONFIG": {"backup_code_dir": ["src"]}}, tmp_path)
    with pytest.raises(ArgumentError, match="leave its folder"):
        exp_manager.configure("../demo", CONFIG, tmp_path, code_root=tmp_path)
    with pytest.raises(ConfigError, match="LOG_USED"):
        exp_manager.configure("demo", {"LOG_USED": ["cvs"]}, tmp_path, code_root=tmp_path)
    with pytest.raises(ConfigError):
        exp_manager.configure("demo", tmp_path / "none.yaml", tmp_path)
    (tmp_path / "file").write_text("")
    exp_manager.configure("demo", CONFIG, tmp_path / "file", code_root=tmp_path / "code")
    with pytest.raises(ArgumentError, match="below data_root"):
        exp_manager.log_files_gen()
    with pytest.raises(ArgumentError, match="'finished', 'interrupted' or 'failed'"):
        exp_manager.close("done")  # type: ignore[arg-type]


def test_one_line_is_printed_and_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(tmp_path)
    exp_manager.log_files_gen()
    logger.record_tabular("a", 1)
    logger.dump_tabular()
    exp_manager.close()
    printed = capsys.readouterr()
    assert (
        printed.out
        == f"rla: this run is stored in {Path(*Path(printed.out.split('in ', 1)[1].strip()).parts)}/\n"
    )
    assert printed.err == ""


def test_the_folders_are_told_in_the_log(tmp_path: Path, places: Places) -> None:
    configure(tmp_path)
    exp_manager.log_files_gen()
    text = text_of(places)
    for folder in (
        exp_manager.log_dir,
        exp_manager.pkl_file,
        exp_manager.checkpoint_dir,
        exp_manager.results_dir,
    ):
        assert str(folder) in text


def test_the_clock_may_be_set_before_the_run(tmp_path: Path, places: Places) -> None:
    exp_manager.set_timestep(5)
    configure(tmp_path)
    exp_manager.log_files_gen()
    assert exp_manager.get_timestep() == 5
    logger.record_tabular("a", 1)
    logger.dump_tabular()
    assert [row.step for row in rows(places)] == [5]


def test_a_loop_over_seeds_that_tracks_in_each_turn(tmp_path: Path) -> None:
    for seed in (1, 2):
        configure(tmp_path)
        exp_manager.set_hyper_param(seed=seed, lr=0.5)
        exp_manager.add_record_param(["seed"])
        if seed == 1:
            exp_manager.add_record_param(["lr"])
        exp_manager.log_files_gen()
        wanted = "&seed=1&lr=0.5" if seed == 1 else "&lr=0.5&seed=2"
        assert str(exp_manager.log_dir).rstrip("/").endswith(wanted)


def test_a_second_experiment_starts_afresh(tmp_path: Path, places: Places) -> None:
    configure(tmp_path)
    folders = []
    for number in range(2):
        exp_manager.log_files_gen()
        folders.append(exp_manager.log_dir)
        logger.record_tabular("rare", number, freq=1000)
        logger.ma_record_tabular("ma", 1.0, 2)
        logger.record_tabular("i", number)
        logger.dump_tabular()
        time_step_holder.set_time(77)
        logger.record_tabular("left over", 1)
    assert folders[0] != folders[1]
    assert [row.step for row in rows(places)] == [0, 0]
    assert values(places) == [{"rare": 0, "i": 0}, {"rare": 1, "i": 1}]
    assert len({opening["run"] for opening in openings(places)}) == 2


def test_four_runs_at_once_have_folders_of_their_own(tmp_path: Path) -> None:
    from rla_client.run.item import create_item

    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.append(create_item(str(tmp_path), "t", "&", "noip").index.path))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8


def test_callback_of_configure(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    configure(tmp_path, log_callback_fn=seen.append)
    exp_manager.log_files_gen()
    logger.record_tabular("a", 1)
    logger.dump_tabular()
    assert seen[0]["a"] == 1


def test_disabled_makes_nothing_and_everything_works(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLA_MODE", "disabled")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    configure(tmp_path, rla_config={**CONFIG, "LOG_USED": ["csv", "log", "tensorboard"]})
    exp_manager.set_hyper_param(a=1)
    exp_manager.add_record_param(["a"])
    exp_manager.log_files_gen()
    logger.record_tabular("x", 1)
    assert logger.dump_tabular()["x"] == 1
    logger.warn("text")
    exp_manager.print_args()
    assert exp_manager.flush(1) is True
    writer = logger.get_tbx_writer()
    writer.add_scalar("x", 1.0)
    folders = [exp_manager.log_dir, exp_manager.checkpoint_dir, exp_manager.results_dir, exp_manager.code_dir,
               exp_manager.hyparameter_dir, exp_manager.tmp_data_dir, exp_manager.pkl_dir]  # fmt: skip
    assert all(os.path.isdir(folder) for folder in folders if folder is not None)
    assert None not in folders
    assert logger.get_dir() == exp_manager.log_dir
    exp_manager.close()
    assert not (tmp_path / "data").exists()
    assert openings(places) == []


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "value"), [("RLA_MODE", "disabled"), ("RANK", "1")])
def test_files_of_a_run_that_stores_nothing_go_with_the_process(
    tmp_path: Path, places: Places, variable: str, value: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\n"
        "from rla_client import exp_manager, logger\n"
        "exp_manager.configure('t', {'LOG_USED': ['csv', 'tensorboard']}, sys.argv[1], code_root='.')\n"
        "exp_manager.log_files_gen()\n"
        "if os.fork() == 0:\n"
        "    sys.exit(0)  # ends like any Python process; the folder is its parent's\n"
        "path = os.path.join(exp_manager.log_dir, 'mine.txt')\n"
        "if os.fork() == 0:\n"
        "    sys.exit(0)\n"
        "os.wait(), os.wait()\n"
        "open(path, 'w').close()\n"
        "logger.get_tbx_writer().add_embedding(__import__('numpy').eye(3))\n"
        "print(path)\n"
    )
    environment = {**os.environ, variable: value, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, script, tmp_path / "data"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "tmp"))
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "tb").exists()


def test_offline_is_told_to_the_agent(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLA_MODE", "offline")
    configure(tmp_path)
    exp_manager.log_files_gen()
    assert openings(places)[0]["offline"] is True


@pytest.mark.parametrize("variable", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_ranks_above_zero_make_no_item(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch, variable: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(variable, "1")
    configure(tmp_path, rla_config={**CONFIG, "LOG_USED": ["stdout", "csv"]})
    exp_manager.log_files_gen()
    logger.record_tabular("x", 1)
    assert logger.dump_tabular()["x"] == 1
    assert not (tmp_path / "data").exists()
    assert openings(places) == []
    assert capsys.readouterr().out == ""


def test_the_spool_is_never_backed_up_as_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing any descriptor of the spool's lock would tell the agent that the writer is gone."""
    from rla_client.contract.agent.places import find_places

    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "code" / "state"))
    stop_autostart(find_places())
    configure(tmp_path)
    exp_manager.log_files_gen()
    stream = logger.get_current().outbox
    assert stream is not None
    assert stream.stream_folder is not None
    inode = (stream.stream_folder / "lock").stat().st_ino
    assert f":{inode} " in Path("/proc/locks").read_text()


def test_rows_before_the_run_is_opened_give_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("rla_client").disabled = False
    manager = ExpManager()
    manager.configure("t", {"LOG_USED": ["csv"]}, tmp_path / "data", code_root=tmp_path)
    try:
        for value in range(2):
            logger.record_tabular("x", value)
            logger.dump_tabular()
    finally:
        logger.get_current().reminder = ""
    assert sum("log_files_gen" in record.getMessage() for record in caplog.records) == 1


def test_an_unknown_mode_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLA_MODE", "disable")
    manager = ExpManager()
    manager.configure("t", {"LOG_USED": ["csv"]}, tmp_path / "data", code_root=tmp_path)
    with pytest.raises(ArgumentError, match="disabled, offline or online"):
        manager.log_files_gen()
    logger.get_current().reminder = ""


def test_tensorflow_that_is_not_there_is_named_when_the_run_is_configured(
    tmp_path: Path, places: Places, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_autostart(places)
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # as if it were not installed
    path = tmp_path / "rla_config.yaml"
    path.write_text("DL_FRAMEWORK: tensorflow\nLOG_USED: [csv]\n")
    manager = ExpManager()
    manager.configure("t", path, tmp_path / "data")
    said = capsys.readouterr().out
    assert f"DL_FRAMEWORK is tensorflow in {path}" in said
    assert "pip install tensorflow" in said
    manager.log_files_gen()
    try:
        with pytest.raises(ArgumentError, match="set DL_FRAMEWORK: torch"):
            manager.save_checkpoint({"w": 1})
        with pytest.raises(ArgumentError, match="set DL_FRAMEWORK: torch"):
            manager.load_checkpoint()
    finally:
        manager.close()


def test_names_are_made_as_in_the_original(tmp_path: Path, places: Places) -> None:
    configure(tmp_path)
    exp_manager.set_hyper_param(lr=0.1, env="a/b", long="x" * 300)
    exp_manager.add_record_param(["lr", "env", "long"])
    date = datetime(2022, 6, 22, 20, 11, 25, 796643)  # noqa: DTZ001 - local, as indices
    assert exp_manager.auto_parse_info() == f"lr=0.1&env=a_b&long={'x' * 300}"
    before = exp_manager.log_name_formatter("log/t", date)
    assert before.startswith(f"log/t/2022/06/22/20-11-25-796643_{exp_manager.ipaddr}_&lr=0.1&env=a_b&long=x")
    exp_manager.log_files_gen()
    assert exp_manager.log_name_formatter("log/t", date) == before
    opened = exp_manager.record_date
    assert opened is not None
    assert f"{exp_manager.log_name_formatter(f'{tmp_path}/data/log/demo', opened)}/" == exp_manager.log_dir
    assert exp_manager.record_date_to_str(opened) in str(exp_manager.log_dir)
    exp_manager.log_name_format_version = None
    assert " " in exp_manager.log_name_formatter("log/t", date)
    exp_manager.log_name_format_version = "v9"
    with pytest.raises(RuntimeError, match="v9"):
        exp_manager.log_name_formatter("log/t", date)


def test_what_the_ignore_file_leaves_out(tmp_path: Path, places: Places) -> None:
    code = tmp_path / "code"
    (code / "src" / "build").mkdir(parents=True)
    (code / "ignore").write_text("# rules\n*.pt\n/src/build/\n!keep.pt\n")
    names = ["a.py", "b.pt", "keep.pt", "build"]
    configure(tmp_path)
    assert exp_manager.get_ignore_files(code / "src", names) == []
    for path in ("ignore", code / "ignore"):
        configure(tmp_path, ignore_file_path=path)
        assert exp_manager.get_ignore_files(code / "src", names) == ["b.pt", "build"]
        assert exp_manager.get_ignore_files(str(code), {"build"}) == []
    configure(tmp_path, ignore_file_path="missing")
    assert exp_manager.get_ignore_files(code, names) == []
    exp_manager.set_timestep(4)
    assert (exp_manager.get_timstep(), exp_manager.task_gen(["a", "b"])) == (4, "a-b")


def test_what_is_sent_to_another_process_is_its_own_there() -> None:
    import pickle

    from rla_client import exp_manager, time_step_holder

    for one in (exp_manager, time_step_holder):
        assert pickle.loads(pickle.dumps(one)) is one
    assert type(pickle.loads(pickle.dumps(type(time_step_holder)()))) is type(time_step_holder)


def test_an_earlier_run_is_resumed_beside_one_whose_handle_is_held(tmp_path: Path, agent: Any) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    assert agent.alive
    root = tmp_path / "data"
    with rla_client.init("t", rla_config={"LOG_USED": ["csv"]}, data_root=root, config={"seed": 1}) as first:
        first.log({"x": 1}, step=1)
        first.save_checkpoint({"w": 1})
        first.log({"x": 2}, step=2)
        index = first.index
    held = rla_client.init("t", rla_config={"LOG_USED": ["csv"]}, data_root=root, config={"seed": 2})
    held.log({"x": 10}, step=10)
    exp_manager.configure("t", {"LOG_USED": ["csv"]}, root)
    with pytest.raises(RunNotFoundError):
        exp_manager.resume("2001/01/01/00-00-00-000000")
    assert exp_manager.run is held.run is not None, "what failed changes nothing"
    assert exp_manager.resume(index) == (1, {"w": 1})
    assert exp_manager.run is not held.run
    assert (exp_manager.resumed_from, exp_manager.get_timestep(), held.get_timestep()) == (1, 1, 10)
    rla_client.log({"x": 3}, step=3)
    held.log({"x": 11}, step=11)
    exp_manager.configure("other", {"LOG_USED": ["csv"]}, root)
    assert held.task_table_name == "t"
    assert exp_manager.flush(60)
    assert held.flush(60)
    found = {}
    for path in (root / "log" / "t").rglob("progress.csv"):
        with path.open(newline="") as file:
            table = [(row["time-step"], row["x"]) for row in csv.DictReader(file)]
        found[str(path.parent.relative_to(root / "log" / "t"))] = table
    assert found[index] == [("1", "1"), ("3", "3")]
    assert found[held.index] == [("10", "10"), ("11", "11")]
    held.close()


METHODS = {
    "add_hyper_param": "values",
    "active": "",
    "alert": "title, text=",
    "add_custom_data": "key, data, dtype=, max_len=, mode=",
    "add_graph": "sess, *args, **kwargs",
    "add_record_param": "keys",
    "add_summary_to_logger": "summary, name=, simple_val=, freq=",
    "archive_content": "",
    "auto_parse_info": "",
    "clear_custom_data": "key",
    "clear_record_param": "",
    "close": "status=, reason=",
    "configure": "task_table_name=, rla_config=, data_root=, ignore_file_path=, run_file=, is_master_node=, "
    "code_root=, log_callback_fn=, run_id=, resume=, console=, task_name=, private_config_path=, log_root=",
    "dict_to_table_text_summary": "input_dict, name",
    "flush": "timeout=",
    "flush_rows": "timeout=",
    "folder_of": "kind",
    "get_custom_data": "key, trust=",
    "get_ignore_files": "src, names",
    "get_task_table_name": "",
    "get_timestep": "",
    "get_timstep": "",
    "get_version_num": "",
    "keep_best": "metric, mode=, k=",
    "keep_every": "n",
    "checkpoint_status": "name=",
    "load_sharded": "into, step=, name=, trust=",
    "save_sharded": "state, name=, per_rank=, metrics=",
    "load_checkpoint": "ckp_index=, checkpoint_name=, model_dict=, trust=",
    "load_tester": "record_date, task_table_name, log_root",
    "log_file_copy": "source_tester",
    "log_file_finder": "record_date, task_table_name=, file_root=, log_type=",
    "log_files_gen": "all_ranks=, join=, role=",
    "log_name_formatter": "prefix, record_date",
    "new_saver": "max_to_keep=, var_prefix=, verbose=",
    "of_run": "found",
    "print_args": "",
    "print_custom_data": "key, prefix=",
    "print_large_memory_variable": "",
    "print_log_dir": "",
    "record_date_to_str": "record_date",
    "register_custom_type": "kind, to_plain, from_plain, name=",
    "resume": "run, at=, checkpoint_name=, trust=",
    "save_archive": "",
    "save_checkpoint": "model_dict=, related_variable=, checkpoint_name=",
    "serialize_object_and_save": "",
    "set_hyper_param": "**argkw",
    "set_timestep": "t",
    "sync_log_file": "skip_error=, wait=, timeout=",
    "task_gen": "task_pattern_list",
    "time_record": "name",
    "time_record_end": "name",
    "update_fph": "cum_epochs",
    "update_hyper_param": "k, v",
    "update_log_files_location": "root",
}
PROPERTIES = """
    archive_kind checkpoint_dir code_dir hyparameter_dir hyperparameter_dir
    ipaddr last_time_step log_dir pkl_dir pkl_file results_dir resumed root run task_name
    tmp_data_dir writer
"""
ATTRIBUTES = """
    config custom_data data_root dl_framework hyper_param ignore_file_path info is_master_node
    last_record_fph_time loaded_record log_callback_fn log_name_format_version max_to_keep
    private_config project_root record_date resume_mode resumed_from run_file run_id task_table_name
    time_step_holder
"""


def told(method: Any) -> str:
    """Names of the arguments; `=` behind those that may be left out."""
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return ", ".join(
        f"{stars.get(one.kind, '')}{one.name}{'' if one.default is one.empty else '='}"
        for one in inspect.signature(method).parameters.values()
    )


def test_each_name_is_there_and_no_other() -> None:
    names = {name for name in dir(ExpManager()) if not name.startswith("_")}
    assert names == {*METHODS, *PROPERTIES.split(), *ATTRIBUTES.split(), "hyper_param_record"}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_what_it_took(name: str) -> None:
    assert told(getattr(ExpManager(), name)) == METHODS[name]


@pytest.mark.parametrize("name", PROPERTIES.split())
def test_a_property_is_read_only(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(ExpManager(), name, None)


@pytest.mark.parametrize("name", ATTRIBUTES.split())
def test_an_attribute_may_be_assigned(name: str) -> None:
    manager = ExpManager()
    setattr(manager, name, "x")
    assert getattr(manager, name) == "x"


def test_what_is_tracked_may_be_that_of_another_run() -> None:
    manager = ExpManager()
    manager.hyper_param_record = ["lr=0.1", "arch={64, 64}", "name=a=b"]
    assert manager.auto_parse_info() == "lr=0.1&arch={64, 64}&name=a=b"
    manager.set_hyper_param(seed=3)
    manager.add_record_param(["seed"])
    assert manager.hyper_param_record == ["lr=0.1", "arch={64, 64}", "name=a=b", "seed=3"]
    manager.clear_record_param()
    assert manager.hyper_param_record == []


def test_a_class_of_the_users_own_takes_part(fresh_manager: None, places: Places, tmp_path: Path) -> None:
    """Scripts for the original override methods; ours call those."""
    pytest.importorskip("torch", reason="needs PyTorch")

    class Own(ExpManager):
        saved = 0

        def save_checkpoint(self, *args: Any, **keywords: Any) -> Any:
            self.saved += 1
            return super().save_checkpoint(*args, **keywords)

    manager = Own()
    manager.configure("t", {"LOG_USED": ["csv"], "AGENT": {"autostart": False}}, tmp_path)
    manager.set_hyper_param(lr=1)
    manager.log_files_gen()
    manager.save_checkpoint({"w": [1.0]})
    assert manager.saved == 1
    manager.close()


def test_a_hyper_parameter_may_have_any_name() -> None:
    manager = ExpManager()
    manager.set_hyper_param(self=1, manager=2, key=3)
    assert manager.hyper_param == {"self": 1, "manager": 2, "key": 3}
