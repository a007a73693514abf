"""Random histories of one stream: rows, reads, rewrites, commits, kills, power cuts, a lost agent.db."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from support.lone import LoneStream, Side, read_in_pieces
from support.oracle import event_records

HISTORIES = int(os.environ.get("RLA_TEST_HISTORIES", "40"))
STEPS = 60


def check(lone: LoneStream) -> None:
    """All outputs hold rows 0…n-1, each once, in order."""
    expected = list(range(lone.rows))
    assert [int(row["seq"]) for row in lone.table()] == expected
    lines = (lone.root / "progress.json").read_text().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == expected
    text = (lone.root / "log.txt").read_text().splitlines()
    assert [int(line.split("|")[2]) for line in text if line.startswith("| seq ")] == expected
    events = list((lone.root / "tb" / "events").iterdir())
    assert len(events) == 1
    assert len(event_records(events[0])) == lone.rows + 1
    assert not [name for name in os.listdir(lone.root) if ".old-" in name]


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_history(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    read_in_pieces(monkeypatch, chance)
    lone = LoneStream(tmp_path)
    side = Side(lone)
    history: list[str] = []
    for _ in range(STEPS):
        step = chance.choices(
            ["rows", "late", "read", "serve", "commit", "kill", "cut", "forget"], [6, 2, 6, 3, 4, 2, 1, 1]
        )[0]
        history.append(step)
        if step == "rows":
            lone.some_rows(chance)
        elif step == "late":
            lone.late_row()
        elif step == "read":
            side.read(chance.randrange(1, 4))
        elif step == "serve":
            side.serve(hurry=chance.random() < 0.5)
        elif step == "commit":
            assert side.commit()
        else:
            side = again(lone, side, step)
    side.read_all()
    side.commit()
    side.drop()
    try:
        check(lone)
    except AssertionError:
        print(history)  # noqa: T201 - shown on failure
        raise


def again(lone: LoneStream, side: Side, how: str) -> Side:
    """Another agent after a kill; `cut`: unsynced bytes are gone too; `forget`: and agent.db."""
    durable = side.durable_sizes()
    side.drop()
    if how == "cut":
        for path, size in durable.items():
            if os.path.exists(path) and os.path.getsize(path) > size:
                os.truncate(path, size)
    if how == "forget":
        lone.forget_database()
    return Side(lone)
