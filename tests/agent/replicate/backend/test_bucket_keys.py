"""Names ↔ keys, and which parts a file consists of."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_agent.replicate.backend.bucket_keys import (
    RADIX,
    StoredSpan,
    chain,
    home_of,
    key_of,
    merged,
    name_of,
    new_id,
    part_name,
    parts_in,
    replaces,
)
from rla_agent.replicate.backend.errors import DeniedError

RUN = b"log/task/2026/11/21/09-30-01-000001_10.0.0.5_&lr=0.001"
names = st.binary(min_size=1, max_size=60).filter(
    lambda name: name not in {b".", b".."} and b"/" not in name and b"\0" not in name
)


@given(st.lists(names, min_size=1, max_size=4), st.sampled_from(["", "a/b"]))
def test_every_name_comes_back(parts: list[bytes], prefix: str) -> None:
    key = key_of(b"/".join(parts), prefix)
    key.encode()
    assert [name_of(part) for part in key.removeprefix(prefix).lstrip("/").split("/")] == parts


def test_usual_names_are_as_they_are() -> None:
    assert key_of(RUN + b"/progress.csv", "p") == f"p/{RUN.decode()}/progress.csv"
    assert key_of("größe 100%".encode()) == "größe 100%"
    assert key_of(b"a\nb!\xff") == "a!0Ab!21!FF"
    assert key_of(b"x/.rla-parts/y") == "x/!2Erla-parts/y"


def test_long_keys_are_refused() -> None:
    with pytest.raises(DeniedError, match="at most 1024"):
        key_of(b"/".join([b"\xff" * 200] * 2))


def test_other_peoples_keys_have_no_name() -> None:
    assert [name_of(text) for text in ("a!0a", "a!41", "!2F", "", "a\nb", ".rla-parts")] == [None] * 6


def test_parts_lie_with_the_run() -> None:
    assert home_of(RUN + b"/progress.csv") == home_of(RUN + b"/tb/a/events") == RUN
    assert home_of(b".rla/trash/x/items/" + RUN + b"/f") == b".rla/trash/x/items/" + RUN
    assert home_of(b"archive_tester/task/2026/11/21/09-30-01-000001_10.0.0.5_&.json").endswith(b"/21")
    assert home_of(b"f") == b""


def test_an_objects_name_tells_what_is_in_it() -> None:
    first, second = new_id(), new_id()
    name = part_name(
        [StoredSpan("", first, 4, 10, 0, 0, 0), StoredSpan("", second, 0, 255, 3, 0, 0)], 1_700_000_000
    )
    found = parts_in(f"x/.rla-parts/{name}", 261)
    assert [(part.id, part.offset, part.end, part.level, part.at) for part in found] == [
        (first, 4, 10, 0, 0),
        (second, 0, 255, 3, 6),
    ]
    assert {part.mtime_s for part in found} == {1_700_000_000}
    assert parts_in(f"x/.rla-parts/{name}", 260) == []  # half of it
    for other in ("x", "x.1", f"{name}.1", name.replace("-", "+", 1)):
        assert parts_in(other, 261) == []


def part(offset: int, end: int, level: int = 0) -> StoredSpan:
    return StoredSpan(f"k{offset}-{end}", "i" * 20, offset, end, level, 0, 0)


def test_a_chain_takes_what_reaches_furthest_and_stops_at_gaps() -> None:
    parts = [part(4, 6), part(4, 9), part(9, 12), part(4, 12, 1), part(13, 20), part(12, 12)]
    assert chain(4, parts) == [part(4, 12, 1)]
    assert chain(4, [part(6, 9), part(4, 7)]) == [part(4, 7), part(6, 9)]
    assert chain(5, [part(4, 5), part(6, 9)]) == []
    assert chain(0, []) == []


@given(st.integers(0, 2**32))
def test_a_chain_has_every_byte_once_whatever_else_lies_there(seed: int) -> None:
    chance = random.Random(seed)
    content = bytes(chance.randrange(256) for _ in range(200))
    parts = []
    for _ in range(chance.randrange(20)):
        begin = chance.randrange(200)
        parts.append(part(begin, chance.randrange(begin + 1, 201), chance.randrange(3)))
    size = at = chance.randrange(200)
    found = content[:size]
    for one in chain(size, parts):
        assert one.offset <= at < one.end
        found += content[at : one.end]
        at = one.end
    assert found == content[:at]
    assert not any(one.offset <= at < one.end for one in parts)


def test_a_file_has_few_parts_however_often_it_grows() -> None:
    parts: list[StoredSpan] = []
    most = written = 0
    for number in range(5000):
        count = merged(parts, 1 << 30)
        replaced = parts[len(parts) - count :]
        begin = replaced[0].offset if replaced else number
        parts[len(parts) - count :] = [part(begin, number + 1, replaces(replaced))]
        written += number + 1 - begin
        most = max(most, len(parts))
        assert chain(0, parts) == parts
        assert parts[-1].end == number + 1
    assert most <= 4 * (RADIX - 1)
    assert written <= 4 * 5000


def test_long_parts_are_not_written_again() -> None:
    assert merged([part(n * 100, n * 100 + 100) for n in range(15)], 1499) == 0
    assert merged([part(n * 100, n * 100 + 100) for n in range(15)], 1500) == 15
