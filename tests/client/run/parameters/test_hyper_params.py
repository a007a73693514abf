"""Hyper-parameters of query results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rla_client.run.parameters.hyper_params import HyperParams, read_hyper_params, tracked, wrap


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


def test_tracked_parameters_keep_order_and_repeats() -> None:
    index = "2022/07/27/14-31-04-861007_172.16.0.33_&input_size=16&input_size=16&name=a=b"
    assert tracked(index) == [("input_size", 16), ("input_size", 16), ("name", "a=b")]
    assert (
        tracked("2022/03/03/15-03-03-761940 11.0.91.89 &info=default exp info&seed=0")[0][1]
        == "default exp info"
    )
