"""Jobs that come to no outcome: each start of the agent tries them once, and not for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from rla_agent.jobs.job_queue import MAX_TRIES, JobContext, JobKind, JobQueue, RetryLaterError
from rla_agent.model.records import Position
from rla_agent.store.agent_db import AgentDatabase, CommitChanges, JobRow
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import pack

STREAM = "0000000000000001-1-0123abcd"
JOB = JobRow(STREAM, Position(1, 20), "figure", pack({"blob": "b1"}))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


class Start:
    """One start of an agent, as its jobs see it."""

    def __init__(
        self,
        database: AgentDatabase,
        places: Places,
        pool: ThreadPoolExecutor,
        work: Callable[[], None],
        *,
        held: bool = False,
    ) -> None:
        self.began = 0
        self._work, self._database = work, database
        kinds = {"figure": JobKind(self._run, media=True, held=held)}
        self.queue = JobQueue(pool, pool, places, kinds, lambda: None, lambda *_: "internal error")
        self.queue.restore(STREAM, database)

    def _run(self, _fields: dict[str, Any], _context: JobContext) -> None:
        self.began += 1
        self._work()

    def commit(self, context: JobContext | None) -> bool:
        changes = CommitChanges()
        self.queue.add_changes((), changes)
        self._database.commit(changes)
        return self.queue.start(lambda _: context)

    def turn(self, context: JobContext | None) -> None:
        """As many commits as a start of the job needs, and its outcome."""
        while self.commit(context):
            pass
        wait_until(
            lambda: (
                not any(job.future and not job.future.done() for job in self.queue._pending.get(STREAM, ()))
            )
        )
        self.queue.collect()
        self.commit(context)


def context(folder: Path) -> JobContext:
    opening: Any = None  # no job here asks for it
    return JobContext(opening, folder)


def fails() -> None:
    raise KeyError("a fault of ours")


def test_what_fails_at_each_start_is_dropped_at_last(
    places: Places, tmp_path: Path, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    blob = places.spool / STREAM / "blobs" / "b1"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"x")
    began = 0
    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        database.commit(CommitChanges(jobs=[JOB]))
        for _ in range(MAX_TRIES):
            start = Start(database, places, pool, fails)
            start.turn(context(tmp_path))
            began += start.began
            assert start.queue.broken(STREAM, media=True)
            assert blob.exists()
        assert (began, len(database.jobs_of(STREAM))) == (MAX_TRIES, 1)
        with caplog.at_level(logging.ERROR):
            start = Start(database, places, pool, fails)
            start.turn(context(tmp_path))
        assert (start.began, database.jobs_of(STREAM), blob.exists()) == (0, [], False)
    assert "is dropped" in caplog.text


def test_a_job_that_takes_the_agent_with_it_is_counted_before_it_begins(
    places: Places, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    seen: list[int] = []
    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        database.commit(CommitChanges(jobs=[JOB]))
        for _ in range(3):
            start = Start(database, places, pool, lambda: seen.append(_tries(tmp_path)))
            while start.commit(context(tmp_path)):
                pass
            future = start.queue._pending[STREAM][0].future
            assert future is not None
            wait_until(future.done)
    assert seen == [1, 2, 3], "as the job itself found it in agent.db"


def _tries(folder: Path) -> int:
    with closing(AgentDatabase(folder / "agent.db")) as database:
        return database.jobs_of(STREAM)[0].tries


def test_jobs_of_a_kind_that_is_held_stay_with_their_payloads(
    places: Places, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    blob = places.spool / STREAM / "blobs" / "b1"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"x")
    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        database.commit(CommitChanges(jobs=[JOB]))
        start = Start(database, places, pool, fails, held=True)
        start.turn(context(tmp_path))
        assert (start.began, start.queue.held(STREAM), start.queue.left(STREAM)) == (0, 1, 1)
        assert (database.jobs_of(STREAM), blob.exists()) == ([JOB], True)
        start = Start(database, places, pool, lambda: None)
        start.turn(context(tmp_path))
        assert (start.began, start.queue.left(STREAM), blob.exists()) == (1, 0, False)


def test_waiting_is_an_outcome_and_a_root_that_is_away_no_try(
    places: Places, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    def no_room() -> None:
        raise RetryLaterError("no space")

    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        database.commit(CommitChanges(jobs=[JOB]))
        for _ in range(MAX_TRIES + 2):
            Start(database, places, pool, fails).turn(None)
        assert database.jobs_of(STREAM) == [JOB]
        for _ in range(MAX_TRIES + 2):
            start = Start(database, places, pool, no_room)
            start.turn(context(tmp_path))
            assert start.began == 1
        assert database.jobs_of(STREAM) == [JOB]
