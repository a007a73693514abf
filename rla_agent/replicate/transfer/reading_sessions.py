"""Pool of sessions that read from a master concurrently.

It hides round trips. A session that several threads may use serves them all (a bucket). Other sessions serve
one thread each: further ones are opened when they are needed, up to `connections`; where the master allows
fewer, these suffice.

A file that a thread is at is its own affair: bounded memory (a piece of it), and on disk what a kill leaves.
The threads are daemons, and stop at their next piece: an interrupted command ends at once.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar, cast

from rla_agent.replicate.backend.errors import LinkError, TargetError
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession

AHEAD: Final = 4  # jobs for each reader that are taken from the list before one of them is done
JOIN_S: Final = 2.0
Job = TypeVar("Job")
Result = TypeVar("Result")


class Readers:
    """Sessions at one target. `each` is for one thread."""

    def __init__(
        self, first: TargetSession, connect: Callable[[], TargetSession] | None = None, connections: int = 1
    ) -> None:
        """`first` stays the caller's; what `connect` gives is closed by `close`."""
        self.first = first
        self._connect = connect if first.readers == 1 else None
        self.limit = first.readers if self._connect is None else max(1, connections)
        self._free: queue.SimpleQueue[TargetSession] = queue.SimpleQueue()
        for _ in range(first.readers):
            self._free.put(first)
        self._opening = threading.Lock()  # held while a thread connects, which may take long
        self._ending = threading.Lock()  # of the list, and `close`; taken within that one
        self._opened: list[TargetSession] = []
        self._owns_first = self._stopped = False

    @classmethod
    def opened(cls, connect: Callable[[], TargetSession], connections: int) -> Readers:
        """With a first session that is closed with the others.

        Raises:
            TargetError: the target cannot be reached, or refuses.
        """
        made = cls(connect(), connect, connections)
        made._owns_first = True
        return made

    @contextmanager
    def lent(self) -> Iterator[TargetSession]:
        """A session for this thread alone, or one that may be shared.

        Raises:
            LinkError: `close` was called.
        """
        self.go_on()
        session = self._one()
        try:
            yield session
        finally:
            self._free.put(session)

    def _one(self) -> TargetSession:
        try:
            return self._free.get_nowait()
        except queue.Empty:
            return self._another() or self._free.get()

    def _another(self) -> TargetSession | None:
        with self._opening:
            if self._connect is None or len(self._opened) + 1 >= self.limit or self._stopped:
                return None
            try:
                session = self._connect()
            except TargetError:
                self._connect = None  # the existing ones must suffice
                return None
            if self._keep(session):
                return session
            session.close()
        raise _stopping()

    def _keep(self, session: TargetSession) -> bool:
        """Register a session for `close`; False where that was called."""
        with self._ending:
            if not self._stopped:
                self._opened.append(session)
            return not self._stopped

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `TargetSession`."""
        with self.lent() as session:
            return session.listing(path)

    def go_on(self) -> None:
        """Raise a LinkError once `close` was called."""
        if self._stopped:
            raise _stopping()

    def each(
        self, jobs: Iterable[Job], do: Callable[[TargetSession, Job], Result]
    ) -> Generator[tuple[Job, Result], None, None]:
        """Results of `do` for each job, as they are done; its exceptions are raised here."""
        if self.limit == 1:
            for job in jobs:
                with self.lent() as session:
                    result = do(session, job)
                yield job, result
            return
        crew = _Crew(self, do)
        try:
            for job in jobs:
                crew.give(job)
                while crew.waiting >= AHEAD * self.limit:
                    yield crew.take()
                while crew.has_results():
                    yield crew.take()
            while crew.waiting:
                yield crew.take()
        finally:
            crew.dismiss()

    def close(self) -> None:
        """Stop reading threads, and close sessions opened here; a connecting thread closes its own."""
        with self._ending:
            self._stopped = True
            for session in [*self._opened, *([self.first] if self._owns_first else [])]:
                session.close()


def _stopping() -> LinkError:
    return LinkError("fetch", b"", "stopping")


class _Crew(Generic[Job, Result]):
    """The threads of one `each`; belongs to the thread that calls it."""

    def __init__(self, readers: Readers, do: Callable[[TargetSession, Job], Result]) -> None:
        self._readers = readers
        self._do = do
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[tuple[Job, Result | BaseException, bool]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.waiting = 0

    def give(self, job: Job) -> None:
        self._inbox.put(job)
        self.waiting += 1
        if len(self._threads) < min(self._readers.limit, self.waiting):
            thread = threading.Thread(target=self._run, name=f"reader-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def has_results(self) -> bool:
        return not self._outbox.empty()

    def take(self) -> tuple[Job, Result]:
        job, result, failed = self._outbox.get()
        self.waiting -= 1
        if failed:
            assert isinstance(result, BaseException)
            raise result
        return job, cast("Result", result)

    def dismiss(self) -> None:
        """Let the threads end, after their current piece, or with the process."""
        for _ in self._threads:
            self._inbox.put(None)
        if self.waiting:  # the rest is not wanted any more
            self._readers.close()
        for thread in self._threads:
            thread.join(JOIN_S / len(self._threads) if self.waiting else None)

    def _run(self) -> None:
        while (job := self._inbox.get()) is not None:
            try:
                with self._readers.lent() as session:
                    result = self._do(session, job)
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for it
                self._outbox.put((job, error, True))
            else:
                self._outbox.put((job, result, False))
