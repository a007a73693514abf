"""RLA's former functions on earlier runs, now in ExperimentLoader."""

from __future__ import annotations

import argparse
from typing import Any

from rla_client.loader import ExperimentLoader, without_hidden
from rla_client.stream.clock import time_step_holder


def _loader(task_table_name: str, record_date: str) -> ExperimentLoader:
    loader = ExperimentLoader()
    loader.config(task_table_name, record_date)
    return loader


def import_hyper_parameters(task_table_name: str, record_date: str) -> argparse.Namespace:
    """Hyper-parameters of a run of the current data root."""
    loader = _loader(task_table_name, record_date)
    return argparse.Namespace(**without_hidden(loader.load().hyper_param))


def load_from_record_date(task_table_name: str, record_date: str, *, trust: bool = False) -> tuple[int, Any]:
    """The newest checkpoint of a run of the current data root; sets the clock to its time-step."""
    step, content, _ = _loader(task_table_name, record_date).load_from_record_date(trust=trust)
    time_step_holder.set_time(step)
    return step, content


def fork_tester_log_files(task_table_name: str, record_date: str) -> None:
    """Copy a run's data into the current run."""
    _loader(task_table_name, record_date).fork_log_files()
