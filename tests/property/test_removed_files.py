"""Random histories of one stream under a user who removes its files, or moves one away and back."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from support.lone import LoneStream, Side, read_in_pieces
from support.oracle import event_records

HISTORIES = int(os.environ.get("RLA_TEST_HISTORIES", "30"))
STEPS = 60


def remove(lone: LoneStream, side: Side, chance: random.Random) -> None:
    table = lone.root / "progress.csv"
    how = chance.choice(["table", "json", "events", "moved"])
    if how == "events":
        shutil.rmtree(lone.root / "tb", ignore_errors=True)
    elif how == "moved" and table.exists():
        aside = lone.root.with_name("aside.csv")
        table.rename(aside)
        side.read()
        side.commit()
        if not table.exists():
            aside.rename(table)
    else:
        (table if how == "table" else lone.root / "progress.json").unlink(missing_ok=True)


def check(lone: LoneStream) -> None:
    """Rows may be missing with a file that was removed; the others are in order, whole, once each."""
    objects = [json.loads(line) for line in (lone.root / "progress.json").read_text().splitlines()]
    for found in ([int(row["seq"]) for row in lone.table()], [row["seq"] for row in objects]):
        assert found == sorted(set(found))
        assert found[-1] == lone.rows - 1
    (events,) = (lone.root / "tb" / "events").iterdir()
    assert len(event_records(events)) <= lone.rows + 1


def do(step: str, lone: LoneStream, side: Side, chance: random.Random) -> None:
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
    elif step == "begin":
        side.begin()
    else:
        remove(lone, side, chance)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_history(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    read_in_pieces(monkeypatch, chance)
    lone = LoneStream(tmp_path)
    side = Side(lone)
    for _ in range(STEPS):
        step = chance.choices(
            ["rows", "late", "read", "serve", "commit", "begin", "kill", "forget", "remove"],
            [6, 2, 6, 3, 5, 3, 2, 1, 2],
        )[0]
        if step in {"kill", "forget"}:
            side.drop()
            if step == "forget":
                lone.forget_database()
            side = Side(lone)
        else:
            do(step, lone, side, chance)
        assert not side.stream.removed
    for _ in range(3):  # the first commits may be those that notice what was removed
        lone.row({"v": 1})
        for output in side.stream.outputs:
            output.touch()
        side.settle()
    side.drop()
    check(lone)
