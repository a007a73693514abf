"""Small files that wait: the last content of each, in order, and how long the first was refused."""

from __future__ import annotations

from rla_agent.model.records import ItemFile
from rla_agent.pipeline.file_queue import FileQueue


def queue_of(*files: tuple[str, str]) -> FileQueue:
    queue = FileQueue()
    for path, content in files:
        queue.add(ItemFile("log", path, content.encode()))
    return queue


def test_only_the_last_content_of_a_file_stays() -> None:
    queue = queue_of(("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("a", "2"))
    queue.drop_superseded()
    assert [(file.path, file.content) for file in queue] == [("b", b"1"), ("c", b"1"), ("a", b"2")]


def test_the_first_goes_when_it_has_ended() -> None:
    queue = queue_of(("a", "1"), ("b", "1"))
    assert queue.first.path == "a"
    queue.end_first()
    assert queue.first.path == "b"
    queue.clear()
    assert not queue


def test_a_refusal_lasts_until_the_first_has_ended() -> None:
    queue = queue_of(("a", "1"), ("b", "1"))
    assert [queue.refused_for(now) for now in (10.0, 15.0)] == [0.0, 5.0]
    queue.add(ItemFile("log", "a", b"2"))
    queue.drop_superseded()
    assert queue.refused_for(20.0) == 10.0, (
        "a client that writes it each minute must not hold rows up for ever"
    )
    queue.end_first()
    assert queue.refused_for(30.0) == 0.0
