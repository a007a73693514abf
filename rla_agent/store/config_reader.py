"""Non-blocking reader of `rla_config.yaml`.

A run's configuration may be on a file server that hangs: stat(2) and open(2) return when the server does, if
ever. So threads that ingest rows or send alerts never call them: a reader thread does, and callers wait for
WAIT_S at most and continue with the defaults (no rules for alerts, nothing replicated), or with the former
content.

A stuck reader (STUCK_S) is left alone, and another one reads the rest: MOST_READERS at most, since a thread
in such a call cannot be ended; then all unread files wait until one returns. A transient error is no result:
`retry` reads again. `problems` lists unread files.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rla_client.config.schema import Config, load_config
from rla_client.contract.errors import ConfigError
from rla_client.contract.filesystem.trusted_paths import file_problem

WAIT_S = 1.0  # reading takes some ms; so long at most a volume's rows wait, once for each file
STUCK_S = 0.4  # after which another reader takes over what is left, in time for who waits for that
MOST_READERS = 4  # mounts that hang at a time; each costs a thread until it comes back
MOST_KEPT = 1000  # files; the least lately read is forgotten
MOST_ASKED = 1000  # files that wait for a reader
RETRY_S = 5.0
_PASSING = frozenset(
    {errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH,
     errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNREFUSED, errno.ECONNRESET, errno.EAGAIN, errno.EINTR,
     errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EREMOTEIO}
)  # fmt: skip
Changed = tuple[int, int, int] | None  # what tells one content of a file from another; None without a file
_log = logging.getLogger("rla_agent.config")


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of reading a configuration.

    Attributes:
        changed: st_ctime_ns (a chmod counts too), inode and size before it was read; None without a file.
        config: its content, None where it cannot be used.
        faults: why not.
        real: its path without links.
        foreign: why it may not name programs: somebody else can change it.
    """

    changed: Changed
    config: Config | None = None
    faults: tuple[str, ...] = ()
    real: str = ""
    foreign: str = ""


@dataclass(slots=True)
class _Asked:
    """A requested file. Times are of the monotonic clock."""

    since: float
    done: threading.Event = field(default_factory=threading.Event)
    begun: float | None = None
    failed: str = ""  # the last try: an error that may pass
    retry_at: float = 0.0

    def waiting(self, now: float) -> bool:
        """Whether a reader may take it."""
        return self.begun is None and now >= self.retry_at

    @property
    def why(self) -> str:
        """Why it is not read yet."""
        if self.failed:
            return self.failed
        return (
            "its disk or server does not answer" if self.begun else "it waits for others that do not answer"
        )


class ConfigReader:
    """Reads configurations; all methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Reading] = {}
        self._asked: dict[str, _Asked] = {}
        self._readers = 0

    def known(self, config: str) -> Reading | None:
        """The last reading, None before there is one. Never waits."""
        with self._lock:
            return self._known.get(config)

    def reading(self, config: str, wait_s: float = WAIT_S) -> Reading | None:
        """Read a file, waiting `wait_s` at most; returns its last reading."""
        self.look([config], wait_s)
        return self.known(config)

    def look(self, configs: Iterable[str], wait_s: float = WAIT_S) -> None:
        """Check files, and read new or changed ones; returns after `wait_s` at the latest.

        A file that was awaited for so long before is not awaited again.
        """
        now = time.monotonic()
        with self._lock:
            asked = [one for one in map(self._ask, configs) if one is not None]
            self._have_read(now)
            if self._stuck(now) >= MOST_READERS:
                return
        for one in asked:
            self._await(one, min(now, one.since) + wait_s)

    def _await(self, one: _Asked, until: float) -> None:
        while (left := until - time.monotonic()) > 0 and not one.done.wait(min(left, STUCK_S)):
            with self._lock:
                self._have_read(time.monotonic())  # it may be behind one that hangs

    def retry(self) -> None:
        """Retry unread files that no reader has; costs nothing otherwise. Never waits."""
        if self._asked:
            with self._lock:
                self._have_read(time.monotonic())

    def problems(self) -> list[dict[str, str]]:
        """Unreadable files as `what` and `fix`, for `status`."""
        now = time.monotonic()
        with self._lock:
            late = [
                (path, f"{now - one.since:.0f} s", one.why, path in self._known)
                for path, one in self._asked.items()
                if now - one.since > WAIT_S
            ]
        meanwhile = ("without its alerts and are not sent to its master", "with the settings it had before")
        fix = "restore its mount; this lists the candidates: grep -e nfs -e fuse /proc/mounts"
        return [
            {
                "what": f"{path} cannot be read for {since}: {why}; its runs are recorded {meanwhile[known]}",
                "fix": fix,
            }
            for path, since, why, known in late
        ]

    def _ask(self, config: str) -> _Asked | None:
        asked = self._asked.get(config)
        if asked is None and len(self._asked) < MOST_ASKED:
            asked = self._asked[config] = _Asked(time.monotonic())
        return asked

    def _stuck(self, now: float) -> int:
        return sum(one.begun is not None and now - one.begun >= STUCK_S for one in self._asked.values())

    def _have_read(self, now: float) -> None:
        """Start a reader if files wait and all readers hang."""
        if self._readers >= MOST_READERS or self._readers > self._stuck(now):
            return
        if any(one.waiting(now) for one in self._asked.values()):
            self._readers += 1
            threading.Thread(target=self._serve, name="config-reader", daemon=True).start()

    def _serve(self) -> None:
        while True:
            now = time.monotonic()
            with self._lock:
                config = next((path for path, one in self._asked.items() if one.waiting(now)), None)
                if config is None:
                    self._readers -= 1
                    return
                self._asked[config].begun = now
                former = self._known.get(config)
            try:
                found = _read(config, former)
            except OSError as error:
                self._failed(config, error.strerror or str(error))
            except Exception as error:  # noqa: BLE001 - the top of a thread; others are to be read too
                if self._failed(config, f"{type(error).__name__}: {error}"):
                    _log.exception("cannot read %s", config)
            else:
                self._keep(config, found)

    def _failed(self, config: str, why: str) -> bool:
        """Have it tried again later; whether the reason is another one than before."""
        with self._lock:
            asked = self._asked[config]
            is_news = asked.failed != why
            asked.begun, asked.failed, asked.retry_at = None, why, time.monotonic() + RETRY_S
            asked.done.set()
        return is_news

    def _keep(self, config: str, found: Reading) -> None:
        with self._lock:
            self._known.pop(config, None)
            self._known[config] = found
            while len(self._known) > MOST_KEPT:
                del self._known[next(iter(self._known))]
            self._asked.pop(config).done.set()


def _read(config: str, former: Reading | None) -> Reading:
    """Look at a file, and read it if it is not as it was; errors that pass are raised."""
    try:
        status = os.stat(config)
        changed = (status.st_ctime_ns, status.st_ino, status.st_size)
    except OSError as error:
        _raise_passing(error)
        changed = None
    if former is not None and former.changed == changed:
        foreign = _foreign(config) if former.config else ""
        return former if foreign == former.foreign else replace(former, foreign=foreign)
    real = os.path.realpath(config)
    try:
        return Reading(changed, load_config(Path(config)), (), real, _foreign(config))
    except ConfigError as error:
        _raise_passing(error.__cause__)
        return Reading(changed, None, tuple(error.faults), real)
    except OSError as error:
        _raise_passing(error)
        return Reading(changed, None, ("it went away while it was read",), real)


def _foreign(config: str) -> str:
    problem = file_problem(os.path.abspath(config))
    return "" if problem is None else str(problem)


def _raise_passing(error: object) -> None:
    if isinstance(error, OSError) and error.errno in _PASSING:
        raise error
