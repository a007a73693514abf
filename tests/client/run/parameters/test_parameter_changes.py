"""A run that is resumed with other hyper-parameters says so and keeps both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rla_client.code.run_secrets import Secrets
from rla_client.run.item import ItemFolders, create_item
from rla_client.run.parameters.parameter_changes import (
    changed_parameters,
    keep_changes,
    last_parameters,
    tell_changes,
)
from rla_client.run.parameters.parameter_file import parameter_file, write_parameters

SCRIPT = """
import os, sys
from rla_client import exp_manager
lr = float(sys.argv[2])
exp_manager.configure('t', {'LOG_USED': ['stdout', 'csv', 'log']}, sys.argv[1], code_root=sys.argv[1],
                      run_id='one', resume='allow')
exp_manager.set_hyper_param(lr=lr, seed=1, net={'sizes': (64, 64)})
exp_manager.add_record_param(['lr'])
exp_manager.log_files_gen()
exp_manager.flush(60)
os._exit(1)
"""


@pytest.fixture
def item(tmp_path: Path) -> ItemFolders:
    made = create_item(str(tmp_path), "t", "", "noip")
    write_parameters(made, *parameter_file({"lr": 0.1, "net": {"sizes": (1, 2), "name": "a"}, "old": 1}))
    return made


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_a_resumed_run_tells_and_keeps_what_changed(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    printed = []
    for lr in (0.1, 0.1, 0.5, 0.5, 0.2):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, tmp_path, str(lr)], capture_output=True, text=True, check=False,
            timeout=60, env=os.environ,
        )  # fmt: skip
        assert done.returncode == 1, done.stderr
        printed.append(done.stdout.count("resumed with other hyper-parameters"))
    assert printed == [0, 0, 1, 0, 1]
    (log,) = tmp_path.glob("log/t/*/*/*/*")
    assert "lr=0.1" in log.name
    assert "lr: 0.1" in (log / "parameter.yaml").read_text()
    files = sorted(path.name for path in log.glob("parameter.resumed-*"))
    assert files == ["parameter.resumed-1.json", "parameter.resumed-2.json"]
    second = json.loads((log / files[1]).read_text())
    assert second["changed"] == {"lr": [0.5, 0.2]}
    assert second["hyper_param"] == {"lr": 0.2, "seed": 1, "net": {"sizes": [64, 64]}}
    wait_until(lambda: "lr was 0.5, is now 0.2" in (log / "warn.txt").read_text())


def test_equal_parameters_of_other_types_are_equal(item: ItemFolders) -> None:
    same = {"lr": np.float64(0.1), "net": {"sizes": [1, 2], "name": "a"}, "old": 1}
    assert changed_parameters(item, same, Secrets()) == {}
    assert changed_parameters(item, {}, Secrets()) == {}, "none given: they are taken over"


def test_names_that_come_go_and_change(item: ItemFolders) -> None:
    changed = changed_parameters(
        item, {"lr": 0.1, "net": {"sizes": [1, 3], "name": "a"}, "new": "x" * 500}, Secrets()
    )
    assert changed == {"net.sizes": ([1, 2], [1, 3]), "old": (1, None), "new": (None, "x" * 500)}
    told = tell_changes(changed)
    assert "net.sizes was [1, 2], is now [1, 3]" in told
    assert len(told) < 600
    keep_changes(item, {"lr": 0.1}, changed, 7)
    assert last_parameters(item) == {"lr": 0.1}


def test_a_damaged_file_is_passed_over(item: ItemFolders) -> None:
    keep_changes(item, {"lr": 0.2}, {}, None)
    Path(item.folder("log"), "parameter.resumed-2.json").write_text("{half")
    assert last_parameters(item) == {"lr": 0.2}
    keep_changes(item, {"lr": 0.3}, {}, None)
    assert last_parameters(item) == {"lr": 0.3}


SECRET_SCRIPT = """
import os, sys
from rla_client import exp_manager
exp_manager.configure('t', {'LOG_USED': ['stdout', 'csv', 'log']}, sys.argv[1], code_root=sys.argv[1],
                      run_id='one', resume='allow')
exp_manager.set_hyper_param(api_key=sys.argv[2], lr=float(sys.argv[3]))
exp_manager.log_files_gen()
print('TRUE', exp_manager.hyper_param['api_key'], flush=True)
exp_manager.flush(20)
os._exit(1)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_a_resumed_run_sees_its_own_secret_and_writes_none(tmp_path: Path) -> None:
    for key, lr in (("first-key-8841", 0.1), ("second-key-9973", 0.1), ("second-key-9973", 0.5)):
        done = subprocess.run(
            [sys.executable, "-c", SECRET_SCRIPT, tmp_path, key, str(lr)], capture_output=True, text=True,
            check=False, timeout=60, env=os.environ,
        )  # fmt: skip
        assert f"TRUE {key}" in done.stdout, done.stderr
    (log,) = tmp_path.glob("log/t/*/*/*/*")
    (kept,) = log.glob("parameter.resumed-*")
    assert json.loads(kept.read_text())["changed"] == {"lr": [0.1, 0.5]}
    for path in tmp_path.rglob("*"):
        if path.is_file() and "state" not in path.relative_to(tmp_path).parts:
            assert not [key for key in (b"first-key", b"second-key") if key in path.read_bytes()], path


def test_the_secret_of_an_older_release_is_not_written_again(item: ItemFolders) -> None:
    write_parameters(item, *parameter_file({"lr": 0.1, "api_key": "old-key-771"}))
    changed = changed_parameters(item, {"lr": 0.2, "api_key": "new-key-772"}, Secrets())
    assert changed == {"lr": (0.1, 0.2)}
    own = {"lr": 0.1, "api_key": "new-key-772"}
    write_parameters(item, *parameter_file({"lr": 0.1, "api_key": "<hidden>"}))
    assert changed_parameters(item, own, Secrets.of(own, hides=False)) == {}
