"""The public surface of exp_manager, name by name: how it is built inside is not the users' business."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from rla_client.contract.agent.places import Places
from rla_client.manager import ExpManager

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
    "code_root=, log_callback_fn=, run_id=, resume=, console=, **older_names",
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
    "load_checkpoint": "ckp_index=, checkpoint_name=, model_dict=, trust=",
    "load_tester": "record_date, task_table_name, log_root",
    "log_file_copy": "source_tester",
    "log_file_finder": "record_date, task_table_name=, file_root=, log_type=",
    "log_files_gen": "all_ranks=",
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
