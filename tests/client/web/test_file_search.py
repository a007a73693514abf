"""Search in a file."""

from __future__ import annotations

from typing import Any

import pytest
from support.run_files import OneRun


def test_a_search_goes_on_where_it_ended(one: OneRun) -> None:
    (one.folder("log") / "log.txt").write_text("".join(f"a hit {number}\n" for number in range(1000)))
    found: list[str] = []
    place: int | None = 0
    while place is not None:
        answer = one.ask("search", kind="log", path="log.txt", text="a HIT", **{"from": place})
        found += [line for _, line in answer["hits"]]
        place = answer["next"]
    assert found == [f"a hit {number}" for number in range(1000)]


def test_a_hit_between_two_blocks_is_found_once(one: OneRun) -> None:
    (one.folder("log") / "log.txt").write_bytes(b"." * ((1 << 20) - 3) + b"needle\n" + b"." * 100)
    assert len(one.ask("search", kind="log", path="log.txt", text="needle")["hits"]) == 1


@pytest.mark.parametrize("asked", [{"text": ""}, {"text": "a", "from": -1}, {"text": "a", "from": "x"}])
def test_a_search_for_nothing_is_refused(one: OneRun, asked: dict[str, Any]) -> None:
    one.refused("search", kind="log", path="log.txt", **asked)
