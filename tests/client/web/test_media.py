"""Media of a run, by name and step."""

from __future__ import annotations

import os
import time

import pytest
from support.run_files import OneRun
from support.waiting import TIME_FACTOR

from rla_client.web.item_files import MAX_LISTED
from rla_client.web.media import MAX_STEPS


def test_media_and_other_files(one: OneRun) -> None:
    folder = one.folder("results")
    (folder / "plots").mkdir()
    for step in (0, 20, 3):
        (folder / "plots" / f"{step}-return.png").write_bytes(b"x")
    (folder / "table.csv").write_text("a\n")
    for step in (10, 9):
        (folder / f"{step}-episodes.csv").write_text("a\n")
    (folder / ".hidden.png").write_bytes(b"x")
    found = one.ask("media")
    assert [(group["name"], group["kind"]) for group in found["groups"]] == [
        ("figure.png", "image"),
        ("plots/return.png", "image"),
    ]
    assert found["groups"][1]["files"] == [[s, f"plots/{s}-return.png"] for s in (0, 3, 20)]
    assert [name for name, _, _ in found["others"]] == ["9-episodes.csv", "10-episodes.csv", "table.csv"]


@pytest.mark.slow
def test_a_hundred_thousand_files_are_listed_in_bounds(one: OneRun) -> None:
    folder = one.folder("results")
    for number in range(100_000):
        os.mknod(folder / f"{number}-many.png")
    begun = time.monotonic()
    answer = one.server.post("media", {"run": one.path})
    assert time.monotonic() - begun < 20 * TIME_FACTOR
    many = next(group for group in answer.json["groups"] if group["name"] == "many.png")
    assert many["count"] == 100_000
    assert len(many["files"]) == MAX_STEPS
    assert many["files"][-1][0] == 99_999
    assert len(answer.body) < 1 << 20
    listed = one.ask("files", kind="results")
    assert (len(listed["files"]), listed["count"]) == (MAX_LISTED, 100_001)
