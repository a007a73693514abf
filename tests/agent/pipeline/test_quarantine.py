"""Streams whose opening frame cannot be read: when they are tried again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.lone import LoneStream

import rla_client.stream.segment_writer as spool_module
from rla_agent.pipeline.quarantine import RETRY_S, Quarantine
from rla_client.contract.spool.segments import segment_path

AT = 40  # inside of the opening frame's payload


@pytest.fixture
def lone(tmp_path: Path) -> LoneStream:
    made = LoneStream(tmp_path)
    made.row({"v": 1})
    return made


def flip(lone: LoneStream) -> None:
    """Damage the opening frame, or fix it again, without a trace in the folder's mtime."""
    descriptor = os.open(segment_path(lone.writer.folder, 1), os.O_RDWR)
    os.pwrite(descriptor, bytes([os.pread(descriptor, 1, AT)[0] ^ 0xFF]), AT)
    os.close(descriptor)


def test_it_is_read_again_only_after_a_while(lone: LoneStream) -> None:
    name = lone.writer.name
    streams = Quarantine(lone.spool)
    flip(lone)
    assert streams.read(name, 100.0) is None
    assert "no readable opening frame" in streams[name]
    flip(lone)
    assert streams.read(name, 100.0 + RETRY_S - 0.1) is None  # not looked at
    opening = streams.read(name, 100.0 + RETRY_S)
    assert opening is not None
    assert opening.run == "r"
    assert dict(streams) == {}


def test_a_new_segment_is_read_at_once(lone: LoneStream, monkeypatch: pytest.MonkeyPatch) -> None:
    name = lone.writer.name
    streams = Quarantine(lone.spool)
    flip(lone)
    assert streams.read(name, 100.0) is None
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", 100)
    lone.row({"v": 2})
    lone.row({"v": 3})
    assert segment_path(lone.writer.folder, 2).exists()
    assert streams.read(name, 100.1) is not None


def test_one_that_somebody_removed_is_forgotten(lone: LoneStream) -> None:
    streams = Quarantine(lone.spool)
    flip(lone)
    assert streams.read(lone.writer.name, 100.0) is None
    streams.forget_gone()
    assert len(streams) == 1
    shutil.rmtree(lone.writer.folder)
    streams.forget_gone()
    assert len(streams) == 0


def test_what_is_no_stream_is_not_looked_at(lone: LoneStream) -> None:
    streams = Quarantine(lone.spool)
    assert streams.read("../spool", 1.0) is None
    assert streams.read("0" * 16 + "-1-" + "0" * 8, 1.0) is None
    assert dict(streams) == {}
