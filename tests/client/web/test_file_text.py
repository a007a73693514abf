"""Pieces of long logs."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from support.run_files import OneRun
from support.waiting import TIME_FACTOR

from rla_client.web.file_text import CHUNK_BYTES


def test_a_log_from_its_end_to_its_beginning(one: OneRun) -> None:
    lines = [f"line {number} {'x' * 50}\n" for number in range(10_000)]
    (one.folder("log") / "log.txt").write_text("".join(lines))
    found = one.ask("text", kind="log", path="log.txt")
    parts = [found["text"]]
    assert found["end"] == found["size"]
    while found["start"]:
        found = one.ask("text", kind="log", path="log.txt", before=found["start"])
        assert found["text"].startswith("line ")
        assert len(found["text"]) <= CHUNK_BYTES
        parts.insert(0, found["text"])
    assert "".join(parts) == "".join(lines)


def test_a_log_is_followed_and_begins_anew_when_it_was_cut(one: OneRun) -> None:
    log = one.folder("log") / "log.txt"
    log.write_text("one\ntw")
    found = one.ask("text", kind="log", path="log.txt")
    with log.open("a") as file:
        file.write("o\nthrée\n")
    after = one.ask("text", kind="log", path="log.txt", after=found["end"])
    assert found["text"] + after["text"] == "one\ntwo\nthrée\n"
    log.write_text("new\n")
    again = one.ask("text", kind="log", path="log.txt", after=after["end"])
    assert (again["restarted"], again["text"]) == (True, "new\n")


def test_a_log_of_five_gigabytes_and_a_line_of_100_megabytes(one: OneRun) -> None:
    log = one.folder("log") / "log.txt"
    with log.open("wb") as file:
        file.write(b"begin\n" + b"y" * 1000)
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b" needle end")
    begun = time.monotonic()
    found = one.ask("text", kind="log", path="log.txt")
    assert len(found["text"]) <= CHUNK_BYTES
    assert found["text"].endswith(" needle end")
    middle = one.ask("text", kind="log", path="log.txt", before=found["start"])
    assert middle["end"] == found["start"]
    assert middle["start"] < middle["end"]
    hit = one.ask("search", kind="log", path="log.txt", text="NEEDLE")
    assert [line[-11:] for _, line in hit["hits"]] == [" needle end"]
    assert len(hit["hits"][0][1]) < 1000
    assert one.ask("text", kind="log", path="log.txt", around=hit["hits"][0][0])["end"] > hit["hits"][0][0]
    os.truncate(log, 5 << 30)  # a hole: nobody wrote that
    assert one.ask("text", kind="log", path="log.txt")["size"] < 5 << 30
    assert time.monotonic() - begun < 20 * TIME_FACTOR


@pytest.mark.parametrize("place", [-1, "1", 1.5, None])
def test_an_offset_is_a_whole_number(one: OneRun, place: Any) -> None:
    one.refused("text", kind="log", path="log.txt", before=place)
