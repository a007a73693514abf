from __future__ import annotations

import gzip
import re
import zlib

import pytest

from rla_client.contract import sample_members
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.sample_members import (
    HEAD_BYTES,
    Index,
    encode_member,
    group_of,
    is_whole,
    member_ends,
    member_head,
    read_index,
    read_lines,
)

INDEX = Index(7, 1.5, "train", 3, {"reward": [1.0, None], "prompt": ["a", "ü"]})
LINES = b'{"id": "0"}\n{"id": "1"}\n'


def test_a_member_is_gzip_for_others_and_has_its_index_for_us() -> None:
    data = encode_member(INDEX, 2, LINES)
    assert gzip.decompress(data + data) == LINES * 2
    head = member_head(data)
    assert head is not None
    assert (head.size, head.rows, head.step) == (len(data), 2, 7.0)
    assert read_index(data, head) == INDEX
    assert read_lines(data, head) == LINES
    assert list(member_ends(data + data)) == [len(data), 2 * len(data)]


def test_a_torn_or_changed_member_is_never_taken_for_a_whole_one() -> None:
    data = encode_member(INDEX, 2, LINES)
    assert is_whole(data)
    for size in range(len(data)):
        assert not is_whole(data[:size])
        assert list(member_ends(data[:size])) == []
        assert list(member_ends(data[:size] + bytes(len(data) - size))) in ([], [len(data)])
        assert not is_whole(data[:size] + bytes([data[size] ^ 0x55]) + data[size + 1 :]) or 20 <= size < 32, (
            size
        )


def test_what_is_no_member_is_none_of_ours() -> None:
    for data in (b"", bytes(100), gzip.compress(LINES), b"\x1f\x8b\x08\x04" + bytes(60)):
        assert member_head(data) is None


def test_a_hostile_index_is_an_error_and_no_memory() -> None:
    bomb = zlib.compress(bytes(50 << 20))
    data = encode_member(INDEX, 2, LINES)
    head = member_head(data)
    assert head is not None
    with pytest.raises(RemoteProtocolError):
        read_index(data[:32] + bomb, head._replace(index_bytes=len(bomb)))
    with pytest.raises(RemoteProtocolError):
        read_index(data, head._replace(rows=3))


def test_a_group_is_the_same_in_every_process() -> None:
    assert group_of("what?") == "f1a74f98da0f"
    assert group_of([{"role": "user", "content": "what?"}]) != group_of("what?")
    assert group_of("\udc80") == group_of("\\udc80")


def test_the_header_is_as_it_is_described() -> None:
    rows = re.findall(r"^    (\d+) +(\d+) ", sample_members.__doc__ or "", re.MULTILINE)
    fields = [(int(offset), int(size)) for offset, size in rows]
    assert [offset for offset, _ in fields[1:]] == [offset + size for offset, size in fields[:-1]]
    assert sum(fields[-1]) == HEAD_BYTES
