"""The words of `rla-agent prune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from rla_agent.command import prune


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
        prune.prune(**words)
    assert says in capsys.readouterr().err


def test_ages_and_sizes() -> None:
    assert [prune.seconds_of(text) for text in ("", "90s", "12h", "1.5d")] == [0, 90, 43200, 129600]
    assert [prune.bytes_of(text, "") for text in ("", "7", "2K", "1.5GiB", "3 tb")] == [
        0,
        7,
        2048,
        3 << 29,
        3 << 40,
    ]
