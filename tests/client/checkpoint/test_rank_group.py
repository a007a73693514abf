"""What the ranks tell each other."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rla_client.checkpoint import rank_group
from rla_client.checkpoint.rank_group import Content, RankGroup

TALK_S = 1.0


class Threads(RankGroup):
    """A rank that is a thread; one that waits for others for TALK_S fails with all of them, as gloo's do."""

    def __init__(self, rank: int, barrier: threading.Barrier, box: list[Any]) -> None:
        super().__init__(rank, len(box), barrier)
        self._box = box

    def gather(self, content: Content) -> list[Content]:
        self._box[self.rank] = content
        self.group.wait(TALK_S)
        found = list(self._box)
        self.group.wait(TALK_S)
        return found


def test_work_may_take_longer_than_a_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_group, "TALK_EACH_S", 0.1)
    barrier, box = threading.Barrier(3), [None] * 3

    def rank(number: int) -> list[int]:
        def work() -> int:
            time.sleep(3 * TALK_S if number == 1 else 0)
            return number

        return Threads(number, barrier, box).gather_late(work)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(rank, range(3))) == [[0, 1, 2]] * 3


def test_one_rank_has_no_others_to_ask() -> None:
    assert RankGroup(0, 1, None).gather_late(lambda: "x") == ["x"]
