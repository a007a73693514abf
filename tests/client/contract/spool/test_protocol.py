"""Frames and messages."""

from __future__ import annotations

import re

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.contract.errors import FrameTooLargeError, RemoteProtocolError, UnknownVersionError
from rla_client.contract.spool import protocol


def test_the_documented_header_is_the_one_that_is_written() -> None:
    documented = re.findall(r"^ {4}(\d+) +(\d+) +(\w+)", protocol.__doc__ or "", re.MULTILINE)
    fields = [(int(offset), int(size)) for offset, size, _ in documented[:5]]
    assert fields == [(0, 2), (2, 1), (3, 1), (4, 4), (8, 4)]
    frame = protocol.encode_frame(protocol.FrameKind.ROW, b"payload")
    assert frame[:4] == protocol.FRAME_MAGIC + bytes((protocol.PROTOCOL_VERSION, protocol.FrameKind.ROW))
    assert frame[protocol.FRAME_HEADER_BYTES :] == b"payload"


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(0, 300))
def test_frames_are_read_up_to_the_first_incomplete_one(payloads: list[bytes], cut: int) -> None:
    frames = [protocol.encode_frame(protocol.FrameKind.TEXT, payload) for payload in payloads]
    data = b"".join(frames)[:cut]
    whole, length = 0, 0
    for frame in frames:
        if length + len(frame) > len(data):
            break
        length += len(frame)
        whole += 1
    assert [frame.payload for frame in protocol.iter_frames(data)] == payloads[:whole]


@given(st.binary(max_size=40), st.data())
def test_one_flipped_bit_is_never_a_frame_of_this_version(payload: bytes, data: st.DataObject) -> None:
    frame = bytearray(protocol.encode_frame(protocol.FrameKind.ROW, payload))
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    frame[bit // 8] ^= 1 << bit % 8
    try:
        assert not isinstance(protocol.frame_at(bytes(frame), 0), protocol.Frame)
    except UnknownVersionError:
        assert bit // 8 == 2


def test_a_frame_after_damage_is_found() -> None:
    good = protocol.encode_frame(protocol.FrameKind.ROW, b"x")
    data = protocol.FRAME_MAGIC + b"junk" * 5 + good
    assert protocol.find_frame(data, 0) == len(data) - len(good)
    assert protocol.find_frame(b"nothing", 0) == len(b"nothing")


def test_limits() -> None:
    with pytest.raises(FrameTooLargeError):
        protocol.encode_frame(protocol.FrameKind.FILE, bytes(protocol.MAX_FRAME_BYTES + 1))
    bomb = b"\xdd" + (protocol.MAX_CONTAINER_ITEMS + 1).to_bytes(4, "big") + b"\x80" * 100
    with pytest.raises(RemoteProtocolError):
        protocol.unpack(bomb)


@pytest.mark.parametrize("value", [None, True, 1.5, "ü", b"\0", [1, {"a": -(1 << 63)}], 1 << 64, -(1 << 200)])
def test_plain_data_comes_back(value: object) -> None:
    found = protocol.unpack(protocol.pack(value))
    assert found == value
    assert type(found) is type(value)


def test_what_is_no_plain_data_is_refused() -> None:
    with pytest.raises(TypeError, match="object is not plain data"):
        protocol.pack(object())
    with pytest.raises(RemoteProtocolError):
        protocol.unpack(b"\xd4\x05\x00")  # an unknown extension


def test_messages() -> None:
    message = protocol.encode_message(protocol.MessageKind.HINT, {"s": "x", "n": 1})
    hint = (protocol.MessageKind.HINT, {"s": "x", "n": 1})
    assert protocol.decode_message(message) == protocol.decode_message(message + b"more") == hint
    for wrong in (
        b"",
        b"GET / HTTP/1.1\r\n",
        message[:9],
        protocol.encode_message(1, {})[:4] + b"\xff\0\0\0",
    ):
        with pytest.raises(RemoteProtocolError):
            protocol.decode_message(wrong)
    with pytest.raises(UnknownVersionError):
        protocol.decode_message(message[:2] + b"\x63" + message[3:])


def test_packing_goes_on_after_what_cannot_be_packed_and_beside_other_packing() -> None:
    class Nested(int):
        """Packs while it is packed, as a signal handler may."""

    def nested(value: object) -> object:
        packed.append(protocol.pack([1, {"a": 2.5}]))
        return msgpack.ExtType(protocol.BIG_INT_EXT, str(value).encode())

    packed: list[bytes] = []
    with pytest.raises(TypeError):
        protocol.pack(["begun", object()])
    assert protocol.unpack(protocol.pack({"next": [1, None]})) == {"next": [1, None]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "_packers", [msgpack.Packer(default=nested, strict_types=True)])
        assert protocol.unpack(protocol.pack(["outer", Nested(7), "end"])) == ["outer", 7, "end"]
    assert [protocol.unpack(one) for one in packed] == [[1, {"a": 2.5}]]


@pytest.mark.parametrize("size", [0, 1, 60, 255, 256, 70_000])
def test_the_payload_of_an_event_is_what_msgpack_makes(size: int) -> None:
    assert protocol.event_payload(b"e" * size) == msgpack.packb([b"e" * size])


def test_no_large_buffer_is_kept() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "_packers", [])
        protocol.pack(b"x" * (protocol.MAX_KEPT_BUFFER + 1))
        assert protocol._packers == []
        protocol.pack(b"x")
        assert len(protocol._packers) == 1
