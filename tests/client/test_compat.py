"""Scripts with the original's imports run unchanged."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd

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
from RLA.easy_plot.plot_func_v2 import plot_func
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
print("loader:", ExperimentLoader().load_from_record_date(), "flushed:", logger.flush(20))
"""


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
    assert list(pd.read_csv(csv)["a"]) == [0, 1, 2]


def test_without_a_script_it_says_how(tmp_path: Path) -> None:
    for arguments, code, text in (([], 2, "python -m"), (["missing.py"], 2, "no script missing.py")):
        done = subprocess.run(
            [sys.executable, "-m", "rla_client.compat", *arguments],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code
        assert text in done.stdout + done.stderr
