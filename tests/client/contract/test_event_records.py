"""Event files as records: what is whole, what is later."""

from __future__ import annotations

import math

from tensorboardX.proto.event_pb2 import Event

from rla_client.contract.event_records import masked_crc, records_until, whole_records, whole_records_of


def record(data: bytes) -> bytes:
    head = len(data).to_bytes(8, "little")
    return b"".join(
        (head, masked_crc(head).to_bytes(4, "little"), data, masked_crc(data).to_bytes(4, "little"))
    )


def event(step: int | None, wall_time: float | None) -> bytes:
    placed = {"step": step, "wall_time": wall_time}
    return record(
        Event(**{name: value for name, value in placed.items() if value is not None}).SerializeToString()
    )


def pieces(content: bytes, count: int) -> list[bytes]:
    return [content[at : at + count] for at in range(0, len(content), count)]


def test_records_are_whole_up_to_the_first_damaged_one() -> None:
    first, second = event(1, 1.0), event(2, 2.0)
    for content, whole in (
        (first + second, len(first + second)),
        (first + second[:-1], len(first)),
        (first + second[:20] + b"x" + second[21:] + first, len(first)),
        (b"x" + first, 0),
    ):
        assert whole_records(content) == whole
        assert {whole_records_of(pieces(content, count)) for count in (1, 7, 1000)} == {whole}


def test_where_later_events_begin() -> None:
    early = event(5, 1.0) + event(None, 2.0) + event(1 << 40, 3.0) + event(-7, 9.0)
    for late in (event(6, 4.0), event(6, None), event(1 << 62, math.inf)):
        for count in (1, 13, 1000):
            assert records_until(pieces(early + late + early, count), 5, 3.5) == len(early)
    assert records_until([early], 5, 3.5) is None
    assert records_until([early], 5) == len(event(5, 1.0) + event(None, 2.0))
    assert records_until([early + b"torn" + event(6, 4.0)], 5, 3.5) is None
    assert records_until([early], -math.inf) == 0
