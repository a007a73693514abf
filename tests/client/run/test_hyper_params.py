from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rla_client.contract.errors import BrokenFileError
from rla_client.run.hyper_params import (
    HyperParams,
    parse_yaml,
    read_archive,
    read_hyper_params,
    read_parameter_file,
    tracked,
    wrap,
)

names = st.from_regex(r"[a-z][a-z_.]{0,8}", fullmatch=True)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)


@given(st.dictionaries(names, scalars, max_size=6))
def test_the_fast_yaml_reader_agrees_with_the_full_one(values: dict[str, object]) -> None:
    text = yaml.safe_dump(values)
    assert repr(parse_yaml(text)) == repr(yaml.safe_load(text)) or "e" in text


def test_yaml_as_omegaconf_writes_it() -> None:
    from omegaconf import OmegaConf

    values = {
        "lr": 1e-05,
        "big": 1e20,
        "a": {"b": [1, "x y", None]},
        "on": "yes",
        "time": "12:30:45",
        "n": -3,
    }
    assert parse_yaml(OmegaConf.to_yaml(OmegaConf.create(values))) == values


def test_attributes_items_and_dots_reach_the_same_value() -> None:
    found = wrap({"a": {"b": 3}, "x.y": 4})
    assert found["a"]["b"] == found.a.b == found.dotted("a.b") == 3
    assert found.dotted("x.y") == 4
    assert HyperParams({"x": {"y": 1}, "x.y": {"z.w": 2}}).dotted("x.y.z.w") == 2
    assert found.flat() == {"a.b": 3, "x.y": 4}
    with pytest.raises(AttributeError, match="nope"):
        _ = found.nope
    with pytest.raises(KeyError):
        HyperParams().dotted("a.b")


@pytest.mark.parametrize(
    ("name", "content"), [("parameter.json", "{"), ("parameter.yaml", "a: [1"), ("parameter.json", "[1]")]
)
def test_a_broken_parameter_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BrokenFileError, match=name):
        read_parameter_file(tmp_path)


def test_where_hyper_parameters_come_from(
    root: Path, make_run: Callable[..., str], old_pickle: Callable[..., bytes]
) -> None:
    index = make_run(kinds=("log",), info="&seed=3&env=CartPole-v1")
    assert read_hyper_params(root, "task", index)[0] == {"seed": 3, "env": "CartPole-v1", "lr": 0.1}
    archive = root / "archive_tester" / "task" / f"{index}.pkl"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(old_pickle())
    assert read_hyper_params(root, "task", index)[0] == {"lr": 0.1, "nested": {"a": [1, 2]}}
    (root / "log" / "task" / index / "parameter.yaml").write_text("lr: 0.5\n")
    assert read_hyper_params(root, "task", index)[0] == {"lr": 0.5}
    (root / "log" / "task" / index / "parameter.yaml").write_text("lr: [")
    found, problems = read_hyper_params(root, "task", index)
    assert found["lr"] == 0.1
    assert "parameter.yaml" in problems[0]


def test_an_old_archive_has_new_names_and_no_password(
    tmp_path: Path, old_pickle: Callable[..., bytes]
) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(old_pickle())
    found = read_archive((str(path),))
    assert found is not None
    assert (found["task_table_name"], found["data_root"]) == ("old_task", "/somewhere")
    assert "not to be seen" not in repr(found)


def test_tracked_parameters_keep_order_and_repeats() -> None:
    index = "2022/07/27/14-31-04-861007_172.16.0.33_&input_size=16&input_size=16&name=a=b"
    assert tracked(index) == [("input_size", 16), ("input_size", 16), ("name", "a=b")]
    assert (
        tracked("2022/03/03/15-03-03-761940 11.0.91.89 &info=default exp info&seed=0")[0][1]
        == "default exp info"
    )
