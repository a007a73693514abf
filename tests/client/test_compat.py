"""Scripts with the original's imports run unchanged."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rla_client
from rla_client import logger
from rla_client.compat.rla_names import NAMES
from rla_client.run.record.run_logger import Logger

OLD_SCRIPT = """
import argparse
from RLA.easy_log.tester import tester
from RLA.easy_log import logger
from RLA.easy_log.time_step import time_step_holder
from RLA.easy_log.complex_data_recorder import MatplotlibRecorder as mpr, ImgRecorder
from RLA.easy_log.exp_loader import *
from RLA.easy_log.log_tools import DeleteLogTool, ArchiveLogTool, ViewLogTool, Filter
from RLA.easy_log.time_used_recorder import time_tracker
from RLA.easy_log.const import *
from RLA.easy_log.simple_mat_plot import *
from RLA.easy_plot.plot_func_v2 import default_key_to_legend, plot_func
from RLA.easy_plot import plot_saved_images
from RLA.query_tool import experiment_data_query, single_experiment_query
from RLA.const import DEFAULT_X_NAME, FRAMEWORK
import RLA.easy_log.tester
from RLA import exp_manager
from RLA.rla_argparser import boolean_flag, arg_parser_postprocess

parser = argparse.ArgumentParser()
boolean_flag(parser, "use-mean", default=True)
arg_parser_postprocess(parser)
args = parser.parse_args()
assert exp_manager is tester and args.info == "mine" and args.use_mean is False
assert ExperimentLoader is not None and simple_plot is not None and CHECKPOINT == "checkpoint"
config = {"LOG_USED": ["csv", "log", "tensorboard"], "DL_FRAMEWORK": FRAMEWORK.torch,
          "BACKUP_CONFIG": {"backup_code_dir": []}, "SEND_LOG_FILE": False}
tester.configure(task_name="old", private_config_path=config, log_root="data", code_root=".")
tester.set_hyper_param(**vars(args))
tester.add_record_param(["info"])
tester.log_files_gen()
tester.print_args()
for i in range(3):
    time_step_holder.set_time(i)
    with time_tracker("step"):
        logger.logkv("a", i)
    logger.dumpkvs()
assert (tester.task_name, tester.root) == ("old", "data")
tester.writer.add_scalar("by_writer", 2.5, 7)
print("loader:", ExperimentLoader().load_from_record_date(), "flushed:", logger.flush(60))
"""


OLDER_SCRIPT = """
import argparse, sys
from RLA.easy_log.tester import exp_manager, import_hyper_parameters, load_from_record_date
from RLA.easy_log.tester import fork_tester_log_files
from RLA.easy_log import logger
from RLA.easy_log.tools import time_record, time_record_end, time_used_wrap
from RLA.trackers.memory_used_recorder import print_large_memory_variable
from RLA.trackers.time_used_recorder import time_tracker
from RLA.easy_log.exp_loader import exp_loader
from RLA.easy_log.const import LoadTesterMode, HYPARAM
from RLA.const import PLATFORM_TYPE
from RLA.utils.utils import deprecated_alias, load_yaml, get_dir_seperator
from RLA import fork_log_file_fn, update_hyper_parameters_fn

@deprecated_alias(old="new")
def f(new):
    return new

assert f(old=3) == 3 and get_dir_seperator() == "/" and LoadTesterMode.FORK_TO_NEW == "fork"
config = {"LOG_USED": ["csv", "tensorboard"], "DL_FRAMEWORK": "torch", "SEND_LOG_FILE": False,
          "BACKUP_CONFIG": {"backup_code_dir": ["."]}}
exp_manager.configure("old", config, "../data", "ignore", "run.sh", code_root="..")
exp_manager.set_hyper_param(lr=1, info="a", loaded_task_name="", loaded_date="")
exp_manager.log_files_gen()
assert exp_loader.load_from_record_date() == (0, {}, {})
exp_manager.print_log_dir()
large = b"x" * (1 << 21)
assert print_large_memory_variable()["large"] == "2.0 MiB"
assert exp_manager.print_large_memory_variable()["large"] == "2.0 MiB"
logger.set_time(7)
assert time_used_wrap("f", f, 3) == 3
exp_manager.new_saver(max_to_keep=1)
exp_manager.save_checkpoint(model_dict={"epoch": 7}, related_variable={"iv": 5})
logger.flush(60)
date = exp_manager.record_date.strftime("%Y/%m/%d/%H-%M-%S-%f")
exp_manager.set_hyper_param(lr=2, info="b")
exp_manager.log_files_gen()
assert logger.get_time() == 0
assert import_hyper_parameters("old", date).lr == 1
assert load_from_record_date("old", date) == (7, {"epoch": 7}) and logger.get_time() == 7
fork_tester_log_files("old", date)
exp_manager.log_files_gen()
update_hyper_parameters_fn("../data", "old", date, ["info"])
assert exp_manager.hyper_param["lr"] == 1 and exp_manager.hyper_param["info"] == "b"
fork_log_file_fn("old", date, "../data", sync_timestep=True)
assert logger.get_time() == 7
exp_loader.config("old", date, "../data")
assert exp_loader.load_from_record_date(variable_list=["iv"])[2] == {"iv": 5}
logger.set_time(8); logger.logkv("time_used/f", 1.0); logger.dumpkvs()
print("flushed:", logger.flush(60), exp_manager.code_dir, exp_manager.log_dir, sep="|")
"""


@pytest.mark.slow
def test_names_of_older_versions_run_too(agent: Any, tmp_path: Path) -> None:
    """Relative paths of configure() start from the working directory, as there."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(textwrap.dedent(OLDER_SCRIPT))
    for name in ("ignore", "run.sh", "secret.txt"):
        (project / name).write_text("secret.txt\n")
    done = subprocess.run(
        [sys.executable, "-m", "rla_client.compat", "train.py"],
        cwd=project, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    flushed, code, log = done.stdout.strip().splitlines()[-1].split("|")[-3:]
    assert flushed == "True"
    assert Path(log, "warn.txt").read_text() == ""
    found = {path.relative_to(code).as_posix() for path in Path(code).rglob("*") if path.is_file()}
    assert {"run.sh", "project/train.py", "project/run.sh"} <= found
    assert "project/secret.txt" not in found
    assert list(pd.read_csv(Path(log, "progress.csv"))["time-step"]) == [7, 8]
    events = b"".join(path.read_bytes() for path in (tmp_path / "data/log").rglob("tb/events/*"))
    assert b"large_memory" in events
    assert b"2.0 MiB" in events


@pytest.mark.slow
def test_an_old_script_runs(agent: Any, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(OLD_SCRIPT))
    done = subprocess.run(
        [sys.executable, "-m", "rla_client.compat", str(script), "--no-use-mean", "--info", "mine"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "loader: (0, {}, {}) flushed: True" in done.stdout
    (csv,) = tmp_path.glob("data/log/old/*/*/*/*&info=mine/progress.csv")
    rows = pd.read_csv(csv)
    assert list(rows["a"])[:3] == [0, 1, 2]
    assert rows["by_writer"].tolist()[3:] == [2.5]


SPAWNING_SCRIPT = """
import multiprocessing
from RLA import logger, exp_manager
from RLA.easy_log.time_step import time_step_holder
import RLA.easy_log.tester as old

def work(number):
    return old.exp_manager is exp_manager, number

if __name__ == "__main__":
    for method in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.map(work, [1, 2]))
"""


def test_processes_that_an_old_script_spawns_know_the_names(tmp_path: Path) -> None:
    """They import the script anew, as environments in processes of their own do."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SPAWNING_SCRIPT))
    done = subprocess.run(
        [sys.executable, "-m", "rla_client.compat", str(script)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = "[(True, 1), (True, 2)]"
    assert done.stdout.splitlines() == [f"spawn {shown}", f"forkserver {shown}", f"fork {shown}"]


def test_without_a_script_it_says_how(tmp_path: Path) -> None:
    for arguments, code, text in (([], 2, "python -m"), (["missing.py"], 2, "no script missing.py")):
        done = subprocess.run(
            [sys.executable, "-m", "rla_client.compat", *arguments],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code
        assert text in done.stdout + done.stderr


def test_the_logger_serves_stable_baselines_names() -> None:
    """Its algorithms call record, record_mean and dump(step=…) of whatever set_logger got."""
    former = logger.set_current(Logger(None, ()))
    try:
        logger.record("time/iterations", 1, exclude="tensorboard")
        logger.record_mean("x", 1)
        logger.record_mean("x", 3)
        row = logger.dump(step=256)
    finally:
        logger.set_current(former)
        logger.set_time(0)
    assert (row["time-step"], row["time/iterations"], row["x"]) == (256, 1, 2.0)


def test_the_originals_constants_are_importable_from_the_top() -> None:
    for module in ("RLA.const", "RLA.easy_log.const"):
        for name, (home, attribute) in NAMES[module].items():
            if name != "HYPARAM":
                assert getattr(rla_client, name) == getattr(importlib.import_module(home), attribute), name
    assert (rla_client.DEFAULT_X_NAME, rla_client.LOG_NAME_FORMAT_VERSION.V1) == ("time-step", "v1")


OF_THE_ORIGINAL = {  # public names of its modules
    "RLA.auto_ftp": ("FTPHandler SFTPHandler ftp_factory"),
    "RLA.const": (
        "DEFAULT_TIMESTAMP DEFAULT_X_NAME FRAMEWORK FTP_PROTOCOL_NAME LOG_NAME_FORMAT_VERSION PLATFORM_TYPE"
    ),
    "RLA.easy_log.complex_data_recorder": ("ImgRecorder MatplotlibRecorder format_name"),
    "RLA.easy_log.const": (
        "ARCHIVED_TABLE ARCHIVE_TESTER CHECKPOINT CODE HYPARAMETER HYPARAM_FILE_NAME LOG "
        "LoadTesterMode LogDataType OTHER_RESULTS TMP_DATA default_log_types"
    ),
    "RLA.easy_log.delete_log_tool": ("DeleteLogTool"),
    "RLA.easy_log.exp_loader": ("ExperimentLoader exp_loader fork_log_file_fn update_hyper_parameters_fn"),
    "RLA.easy_log.log_tools": (
        "ArchiveLogTool BasicLogTool DeleteLogTool DownloadLogTool Filter MigrateLogTool "
        "PrettyPlotterTool ViewLogTool"
    ),
    "RLA.easy_log.logger": (
        "BACKUP CSVOutputFormat DEBUG DISABLED ERROR HumanOutputFormat INFO JSONOutputFormat "
        "KVWriter Logger ProfileKV SeqWriter TensorBoardOutputFormat WARN backup configure debug "
        "dump_tabular dumpkvs error get_current get_dir get_tbx_writer get_time getkvs info log "
        "log_from_tf_summary log_key_value log_time_tracker logkv logkv_mean logkvs lst_print_dict "
        "ma_dict ma_record_tabular make_output_format open_time_tracker profile read_csv read_json "
        "read_tb record_tabular reset scoped_configure set_comm set_level set_time summary_val "
        "timestep valid_float_value warn"
    ),
    "RLA.easy_log.simple_mat_plot": ("simple_hist simple_plot simple_scatter"),
    "RLA.easy_log.tester": (
        "Tester exp_manager fork_tester_log_files import_hyper_parameters load_from_record_date"
    ),
    "RLA.easy_log.time_step": ("TimeStepHolder time_step_holder"),
    "RLA.easy_log.time_used_recorder": (
        "SingleTimeTracker TimeTracker rc_start_time time_record time_record_end time_tracker"
    ),
    "RLA.easy_log.tools": ("DeleteLogTool rc_start_time time_record time_record_end time_used_wrap"),
    "RLA.easy_plot.plot_func": (
        "auto_gen_key_value_name csv_to_xy default_key_to_legend picture_split plot_res_func "
        "scale_index_to_dict show_plt split_by_reg split_by_task word_replace word_replace_back"
    ),
    "RLA.easy_plot.plot_func_v2": (
        "csv_to_xy default_key_to_legend meta_csv_data_loader_func picture_split plot_func "
        "split_by_reg split_by_task"
    ),
    "RLA.easy_plot.plot_saved_images": ("meta_image_data_loader_func plot_saved_images"),
    "RLA.easy_plot.plot_util": (
        "PRETTY_COLORS PRETTY_MARKERS default_split_fn default_xy_fn load_results one_sided_ema "
        "plot_results regression_analysis smooth symmetric_ema test_smooth word_replace "
        "word_replace_back"
    ),
    "RLA.easy_plot.result_cls": ("CsvResult ImgResult Result"),
    "RLA.easy_plot.utils": ("results_loader"),
    "RLA.easy_tf.saver_tools": ("load_checkpoint load_tester_from_record_date new_saver save_checkpoint"),
    "RLA.easy_tf.tools": ("run_with_metadata"),
    "RLA.easy_torch.save_tools": ("load_checkpoint save_model_dict"),
    "RLA.email_send": ("send_error"),
    "RLA.query_tool": (
        "ArchiveQueryResult BasicQueryResult CkpResult HyperParamResult LogQueryResult "
        "OtherQueryResult experiment_data_query extract_valid_index single_experiment_query"
    ),
    "RLA.rla_argparser": ("arg_parser_postprocess boolean_flag"),
    "RLA.trackers.memory_used_recorder": ("print_large_memory_variable"),
    "RLA.trackers.time_used_recorder": (
        "SingleTimeTracker TimeTracker rc_start_time time_record time_record_end"
    ),
    "RLA.utils.utils": (
        "deprecated_alias get_dir_seperator get_sys_type load_yaml optional_set rename_kwargs "
        "set_or_append set_or_keep"
    ),
}


@pytest.mark.parametrize("module", OF_THE_ORIGINAL)
def test_each_name_of_the_original_is_there_or_says_what_to_use(module: str) -> None:
    importlib.import_module("rla_client.compat").install()
    for name in OF_THE_ORIGINAL[module].split():
        try:
            exec(f"from {module} import {name}", {})
            told = ""
        except ImportError as error:
            told = str(error)
        assert not told or told.startswith(f"rla_client does not offer {module}.{name}: "), name
        assert "\n" not in told


def test_what_no_release_had_is_no_name() -> None:
    importlib.import_module("rla_client.compat").install()
    module = importlib.import_module("RLA.easy_plot.plot_func")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing
    assert callable(module.plot_res_func)


@pytest.mark.parametrize("name", ["load_yaml", "boolean_flag", "plot_res_func", "load_from_record_date"])
def test_names_below_the_package_are_in_compat_too(name: str) -> None:
    assert callable(getattr(importlib.import_module("rla_client.compat"), name))


def test_the_older_plot_function_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from support.written_runs import write_run

    from rla_client.compat import plot_res_func

    for number in range(2):
        write_run(tmp_path, number=number, info=f"&seed={number}")
    told: list[Any] = []

    def legend(texts: list[str], metric: str) -> str:
        told.append((texts, metric))
        return "mine"

    folder, globs = f"{tmp_path}/log/task/", ["/2026/*/*/*"]
    _, scores = plot_res_func(folder, globs, ["lr"], ["return"], key_to_legend_fn=legend)
    assert scores["mine-err"][0] == 4.5
    assert told[0] == (["lr=0.1"], "return")
    with pytest.raises(ValueError, match="prefix_dir is"):
        plot_res_func(str(tmp_path), ["*"], ["lr"], ["return"])
