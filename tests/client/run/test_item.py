"""Making an item."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import FOLDER_KINDS
from rla_client.run.archive import is_plain, parameter_file, write_parameters
from rla_client.run.item import create_item
from rla_client.run.setup import local_address


def test_folders_are_made_and_never_shared(tmp_path: Path) -> None:
    items = [create_item(str(tmp_path), "a/b", "&x=1", "noip") for _ in range(3)]
    assert len({item.index.path for item in items}) == 3
    for item in items:
        assert all(os.path.isdir(item.folder(kind)) for kind in FOLDER_KINDS)
        assert item.archive_file.endswith("_noip_&x=1.json")
        assert os.path.isdir(os.path.dirname(item.archive_file))


def test_a_data_root_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = re.escape(f"below data_root {tmp_path}/file: Not a directory ({tmp_path}/file/log")
    with pytest.raises(ArgumentError, match=told):
        create_item(str(tmp_path / "file"), "t", "&", "noip")


@pytest.mark.parametrize("place", ["code", "checkpoint/t", "archive_tester/t"])
def test_nothing_is_made_where_a_link_of_somebody_else_leads(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    link = root / place
    link.parent.mkdir(parents=True)
    elsewhere.mkdir()
    link.symlink_to(elsewhere)
    create_item(str(root), "t", "&", "noip")  # of one's own link it is made
    made = sorted(elsewhere.rglob("*"))
    if os.geteuid() == 0:
        os.lchown(link, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(ArgumentError, match=f"{link} is a link of uid"):
        create_item(str(root), "t", "&", "noip")
    assert sorted(elsewhere.rglob("*")) == made


def test_address() -> None:
    assert local_address() == "noip" or local_address().count(".") == 3


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
