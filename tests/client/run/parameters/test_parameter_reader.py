"""Parameter files of OmegaConf or JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rla_client.contract.errors import BrokenFileError
from rla_client.run.parameters.parameter_reader import parse_yaml, read_parameter_file

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


@pytest.mark.parametrize(
    ("name", "content"), [("parameter.json", "{"), ("parameter.yaml", "a: [1"), ("parameter.json", "[1]")]
)
def test_a_broken_parameter_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BrokenFileError, match=name):
        read_parameter_file(tmp_path)
