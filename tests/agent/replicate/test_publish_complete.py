"""Publication of sharded saves of which all parts are here."""

from __future__ import annotations

from pathlib import Path

from support.sharded_folders import check_whole, identity, write_part

from rla_agent.replicate.publish_complete import publish_complete


def test_saves_of_which_all_parts_are_here_get_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint" / "t/2026/11/21/09-30-01-000001_h_&"
    folder.mkdir(parents=True)
    for step, ranks in ((1, 2), (2, 1)):
        for rank in range(ranks):
            write_part(folder, identity(step), rank)
    assert publish_complete(tmp_path) == [str(folder.relative_to(tmp_path) / "checkpoint_1.dcp")]
    check_whole(folder / "checkpoint_1.dcp")
    assert publish_complete(tmp_path) == []
