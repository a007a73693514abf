"""Going on with a run in a new item."""

from __future__ import annotations

from pathlib import Path

from support.sharded_folders import check_whole, identity, write_part
from support.stamped import stamped

from rla_client.contract.layout import CHECKPOINT
from rla_client.contract.run_index import RunIndex
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.run.item import ItemFolders
from rla_client.run.resume.chain import chain_here, take_checkpoint


def item(root: Path, number: int) -> ItemFolders:
    index = RunIndex.parse(f"2026/11/21/09-30-0{number}-000001_h_&")
    assert index is not None
    return ItemFolders(str(root), "t", index, index.opened)


def test_a_chain_goes_on_at_the_checkpoint_that_was_saved_last_be_it_sharded(tmp_path: Path) -> None:
    parent, child = item(tmp_path, 1), item(tmp_path, 2)
    folder, target = (Path(each.folder(CHECKPOINT)) for each in (parent, child))
    for each in (folder, target):
        each.mkdir(parents=True)
    assert chain_here(parent) is None
    for rank in range(2):
        write_part(folder, identity(3), rank, order=5)
    publish_all(folder)
    stamped(folder, 9, 4)
    chained = chain_here(parent)
    assert chained is not None
    assert chained.time_step == 3
    take_checkpoint(chained, child)
    assert check_whole(target / "checkpoint_3.dcp") == 5
    assert not list(target.glob("*.pt"))
