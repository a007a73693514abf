"""Making an item."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import MADE_AT_ONCE
from rla_client.run.item import create_item


def test_folders_are_made_and_never_shared(tmp_path: Path) -> None:
    items = [create_item(str(tmp_path), "a/b", "&x=1", "noip") for _ in range(3)]
    assert len({item.index.path for item in items}) == 3
    for item in items:
        assert all(os.path.isdir(item.folder(kind)) for kind in MADE_AT_ONCE)
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
