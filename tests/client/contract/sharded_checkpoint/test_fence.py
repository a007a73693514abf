"""The fence of sharded checkpoints."""

from __future__ import annotations

from pathlib import Path

from support.sharded_folders import RUN, check_whole, identity, parts_path, write_part

from rla_client.contract.sharded_checkpoint.fence import raise_fence
from rla_client.contract.sharded_checkpoint.files import shard_name
from rla_client.contract.sharded_checkpoint.folder import finals_of, parts_of, read_fence
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.records import Fence


def test_a_raised_fence_publishes_what_is_ready_and_abandons_the_rest(tmp_path: Path) -> None:
    ready, cut = identity(1, epoch=5), identity(2, epoch=5)
    for rank in (0, 1):
        write_part(tmp_path, ready, rank)
    write_part(tmp_path, cut, 0)
    raise_fence(tmp_path, RUN, 6)
    check_whole(tmp_path / "checkpoint_1.dcp")
    assert parts_of(tmp_path) == []
    aside = tmp_path / ".rla-parts"
    assert (aside / "abandoned-1" / parts_path(tmp_path, cut).name / shard_name(0)).is_file()
    for rank in (0, 1):  # a process that did not notice
        write_part(tmp_path, cut, rank)
    assert publish_all(tmp_path) == []
    assert finals_of(tmp_path) == ["checkpoint_1.dcp"]
    assert (aside / "abandoned-2" / parts_path(tmp_path, cut).name).is_dir()
    raise_fence(tmp_path, RUN, 5)  # never down again
    assert read_fence(tmp_path) == Fence(RUN, 6)
