"""Segments of earlier versions open for ever, and give the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crash.golden import decoded, outputs_of

from rla_agent.model.frame_decoder import parse
from rla_client.contract.errors import UnknownVersionError
from rla_client.contract.spool.protocol import FRAME_HEADER, FRAME_MAGIC, PROTOCOL_VERSION, encode_frame, pack

DATA = Path(__file__).with_name("data")
SEGMENTS = sorted(DATA.glob("segment-v*.seg"))


def test_there_is_a_file_for_each_version() -> None:
    assert [path.stem for path in SEGMENTS] == [f"segment-v{n + 1}" for n in range(PROTOCOL_VERSION)]


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: path.stem)
def test_decodes_as_it_did(path: Path) -> None:
    assert decoded(path.read_bytes()) == json.loads(path.with_suffix(".json").read_text())


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: path.stem)
def test_sinks_write_the_same_bytes(path: Path) -> None:
    for name, content in outputs_of(path.read_bytes()).items():
        assert content == path.with_name(f"{path.stem}.{name}").read_bytes(), name


def test_a_frame_of_a_later_version_parks_the_stream() -> None:
    import zlib

    payload = pack(["from the future"])
    version = PROTOCOL_VERSION + 1
    seed = (1 << 24) ^ ((version - 1) << 16) ^ len(payload)
    future = FRAME_HEADER.pack(FRAME_MAGIC, version, 1, len(payload), zlib.crc32(payload, seed)) + payload
    before = encode_frame(2, pack([0, 1.0, {"a": 1}]))
    batch = parse(before + future, 1, 0, final=True)
    assert (batch.end, len(batch.records), batch.damaged) == (len(before), 1, 0)
    with pytest.raises(UnknownVersionError):
        parse(future, 1, len(before), final=True)
