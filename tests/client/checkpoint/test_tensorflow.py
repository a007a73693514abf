"""TensorFlow's checkpoints under RLA's names. Skipped where TensorFlow is not installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rla_client.checkpoint.tensorflow import load_tensorflow, save_tensorflow
from rla_client.contract.errors import ArgumentError, NoCheckpointError
from rla_client.manager import ExpManager

tf = pytest.importorskip("tensorflow")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_variables_come_back_in_place_and_as_arrays(tmp_path: Path) -> None:
    policy, step = tf.Variable([1.0, 2.0], name="pi/w"), tf.Variable(3, name="step")
    save_tensorflow({"pi": policy, "step": step}, tmp_path, "checkpoint", 10)
    assert names(tmp_path) == ["checkpoint-10.data-00000-of-00001", "checkpoint-10.index"]
    policy.assign([0.0, 0.0])
    assert load_tensorflow(tmp_path, "checkpoint", objects={"pi": policy, "step": step})[0] == 10
    assert policy.numpy().tolist() == [1.0, 2.0]
    number, arrays = load_tensorflow(tmp_path, "checkpoint")
    assert number == 10
    assert [array.tolist() for path, array in arrays.items() if path.startswith("pi/")] == [[1.0, 2.0]]
    with pytest.raises(NoCheckpointError):
        load_tensorflow(tmp_path, "checkpoint", 11)


def test_var_prefix_chooses_variables(tmp_path: Path) -> None:
    objects = {"a": tf.Variable(1.0, name="pi/a"), "b": tf.Variable(2.0, name="vf/b")}
    save_tensorflow(objects, tmp_path, "checkpoint", 1, "pi/")
    _, arrays = load_tensorflow(tmp_path, "checkpoint")
    assert [path for path in arrays if path.startswith("b")] == []
    assert np.isclose([value for path, value in arrays.items() if path.startswith("a")], 1.0).all()
    with pytest.raises(ArgumentError, match="var_prefix"):
        save_tensorflow(objects, tmp_path, "checkpoint", 1, "q/")


def test_retention_and_saving_twice(tmp_path: Path) -> None:
    variable = tf.Variable(0.0)
    for step in (1, 2, 2, 3):
        variable.assign(float(step))
        save_tensorflow({"v": variable}, tmp_path, "checkpoint", step, max_to_keep=2)
    assert {name.split(".")[0] for name in names(tmp_path)} == {"checkpoint-2", "checkpoint-3"}
    assert load_tensorflow(tmp_path, "checkpoint")[0] == 3


def test_wrong_arguments_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        save_tensorflow({"v": object()}, tmp_path, "checkpoint", 1)
    with pytest.raises(ArgumentError):
        save_tensorflow({"v": tf.Variable(1.0)}, tmp_path, "../x", 1)
    assert names(tmp_path) == []


def test_a_run_saves_and_restores_in_place(places: object, tmp_path: Path) -> None:
    del places
    config = {"DL_FRAMEWORK": "tensorflow", "LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": []}}
    manager = ExpManager()
    manager.configure("t", config, tmp_path / "data", code_root=tmp_path)
    manager.log_files_gen()
    manager.new_saver(max_to_keep=1, var_prefix="")
    variable = tf.Variable([1.0, 2.0], name="w")
    for step in (1, 2):
        manager.set_timestep(step)
        manager.save_checkpoint({"w": variable}, {"seen": variable, "arr": np.ones(2)})
        variable.assign([9.0, 9.0] if step == 2 else [3.0, 4.0])
    assert manager.load_checkpoint(model_dict={"w": variable})[0] == 2
    assert variable.numpy().tolist() == [3.0, 4.0]
    assert names(Path(str(manager.checkpoint_dir))) == [
        "checkpoint-2.data-00000-of-00001",
        "checkpoint-2.index",
    ]
    manager.save_checkpoint()
    assert len(names(Path(str(manager.checkpoint_dir)))) == 2, "without objects there is nothing to save"
    date = "/".join(Path(str(manager.log_dir)).parts[-4:])[:26]
    manager.close()
    loaded = ExpManager.load_tester(date, "t", tmp_path / "data")
    assert loaded.get_custom_data("arr").tolist() == [1, 1]
    assert loaded.get_custom_data("seen").tolist() == [3.0, 4.0]


def test_restoring_by_prefix_and_what_is_not_there(tmp_path: Path) -> None:
    objects = {"a": tf.Variable(1.0, name="pi/a"), "b": tf.Variable(2.0, name="vf/b")}
    save_tensorflow(objects, tmp_path, "checkpoint", 1, "pi/")
    for variable in objects.values():
        variable.assign(0.0)
    load_tensorflow(tmp_path, "checkpoint", 1, objects, "pi/")
    assert [float(variable.numpy()) for variable in objects.values()] == [1.0, 0.0]
    with pytest.raises(ArgumentError, match="does not hold"):
        load_tensorflow(tmp_path, "checkpoint", 1, objects)
