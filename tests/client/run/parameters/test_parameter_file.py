"""The parameter file of an item."""

from __future__ import annotations

from pathlib import Path

import yaml

from rla_client.run.item import create_item
from rla_client.run.parameters.parameter_file import is_plain, parameter_file, write_parameters


def test_plain_parameters_are_yaml_in_their_order() -> None:
    name, content = parameter_file({"z": 1, "a": (1, 2), "t": "ü", "n": None, "d": {"k": [True]}})
    assert name == "parameter.yaml"
    assert list(yaml.safe_load(content)) == ["z", "a", "t", "n", "d"]
    assert yaml.safe_load(content)["a"] == [1, 2]
    assert parameter_file({}) == ("parameter.yaml", b"{}\n")


def test_plain_is_what_yaml_gives_back() -> None:
    assert is_plain({"a": [1, {"b": None}]})
    for wrong in (object(), {"a": {1, 2}}, b"x", 1j):
        assert not is_plain(wrong)
    loop: list[object] = []
    loop.append(loop)
    assert not is_plain(loop)


def test_parameters_lie_in_three_places(tmp_path: Path) -> None:
    item = create_item(str(tmp_path), "t", "&", "noip")
    write_parameters(item, "parameter.yaml", b"a: 1\n")
    found = sorted(path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("parameter.yaml"))
    assert found == ["code", "hyperparameter", "log"]
