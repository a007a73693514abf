"""Parts of pruning that need no master: what a note means, and the words of `rla-agent prune`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import typer
from support.replication_lab import ITEM

from rla_agent.command import retain as prune_command
from rla_agent.replicate.prune import is_pruned
from rla_client.contract.layout import PRUNED_FOLDER


def test_a_damaged_note_still_keeps_the_masters_copy(tmp_path: Path) -> None:
    root, path = os.fsencode(tmp_path), f"checkpoint/{ITEM}/checkpoint_10.pt".encode()
    note = tmp_path / "checkpoint" / ITEM / PRUNED_FOLDER / "checkpoint_10.pt.json"
    assert not is_pruned(root, path)
    note.parent.mkdir(parents=True)
    assert not is_pruned(root, path)
    note.write_bytes(b"")
    assert is_pruned(root, path)
    (note.parent.parent / "checkpoint_10.pt").write_bytes(b"back")
    assert not is_pruned(root, path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({}, "no database is replicated"),
        ({"older_than": "1d", "kind": ["log"]}, "never pruned"),
        ({"older_than": "soon"}, "is not an age"),
        ({"free": "much"}, "is not a size"),
        ({"max_bytes": "0"}, "--max 0 is not above 0"),
        ({"free": "0G"}, "--free 0G is not above 0"),
        ({"older_than": "0d"}, "--older-than 0d is not above 0"),
        ({"free": "1G", "data_root": Path("/tmp")}, "/tmp is not replicated"),
    ],
)
def test_the_words_of_the_command(
    words: dict[str, Any],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(typer.Exit):
        prune_command.prune(**words)
    assert says in capsys.readouterr().err


def test_ages_and_sizes() -> None:
    assert [prune_command.seconds_of(text) for text in ("", "90s", "12h", "1.5d")] == [0, 90, 43200, 129600]
    assert [prune_command.bytes_of(text, "") for text in ("", "7", "2K", "1.5GiB", "3 tb")] == [
        0,
        7,
        2048,
        3 << 29,
        3 << 40,
    ]
