"""Removal of a stream: it goes from sight before any part of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla_agent.pipeline.remove_stream import remove_stream
from rla_client.contract.spool.segments import stream_names

NAME = "0000000000000001-1-0123abcd"


def stream_folder(spool: Path) -> Path:
    folder = spool / NAME
    (folder / "blobs").mkdir(parents=True)
    for name in ("lock", "000001.seg", "000001.base", "blobs/1"):
        (folder / name).write_bytes(b"x")
    return folder


def test_a_stream_goes_from_sight_before_any_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stream_folder(tmp_path)
    seen: list[list[str]] = []
    real_unlink, real_remove = os.unlink, os.rmdir

    def unlink(path: object, **named: object) -> None:
        seen.append(stream_names(tmp_path))
        real_unlink(path, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "unlink", unlink)
    remove_stream(folder)
    assert real_remove is os.rmdir
    assert seen
    assert all(names == [] for names in seen)
    assert os.listdir(tmp_path) == []
