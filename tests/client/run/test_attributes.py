"""Attributes of `exp_manager`: read from the run, set for the next one."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from rla_client.manager import ExpManager
from rla_client.run.attributes import RunAttributes

ATTRIBUTES = [name for name, value in vars(RunAttributes).items() if isinstance(value, property)]


def test_each_attribute_is_there_before_a_run_is_open() -> None:
    manager = ExpManager()
    assert len(ATTRIBUTES) > 30
    for name in ATTRIBUTES:
        getattr(manager, name)


def test_what_is_set_of_the_configuration_holds_for_the_next_run(tmp_path: Path) -> None:
    manager = ExpManager()
    manager.info, manager.run_id = "&lr=0.1", "one"
    manager.configure("demo", {"LOG_USED": ["csv"]}, tmp_path, code_root=tmp_path)
    manager.hyper_param = {"lr": 0.1}
    manager.dl_framework = "torch"
    assert (manager.info, manager.hyper_param, manager.dl_framework) == ("&lr=0.1", {"lr": 0.1}, "torch")
    assert manager.run_id is None  # configure says it anew


@pytest.mark.parametrize("name", ["run", "log_dir", "ipaddr", "resumed", "root"])
def test_what_the_run_decides_cannot_be_set(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(ExpManager(), name, "x")


def test_help_shows_what_a_method_of_the_open_run_promises() -> None:
    manager = ExpManager()  # what others set in the process's own one is theirs
    public = [getattr(manager, name) for name in dir(manager) if not name.startswith("_")]
    methods = [method for method in public if inspect.ismethod(method)]
    assert len(methods) > 40
    assert [method.__name__ for method in methods if (method.__doc__ or "See").startswith("See")] == []
