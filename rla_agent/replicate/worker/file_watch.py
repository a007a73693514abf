"""File watch over the folders of the last ended items."""

from __future__ import annotations

import logging
import logging.handlers
import os
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Final

DEBOUNCE_MS: Final = 400
STEP_MS: Final = 200
REST_S: Final = 60.0  # after watchfiles failed: a name that is not UTF-8, no watches left
JOIN_S: Final = 2.0
MAX_PATHS: Final = 10_000  # reported and not yet taken; the full scan finds those beyond
log = logging.getLogger("rla_agent.replicate")


class FileWatch:
    """A thread that reports changed paths below some folders: those of the items that ended last.

    Files that somebody adds to them are sent within a second. An event is only a hint (docs/adr/0005): live
    items are announced by the agent and scanned each second, and everything is scanned every minute, so a
    lost event costs a minute. Only a few items are watched, because inotify takes a watch for each folder and
    a database has millions.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called, from the thread, when there is something to take."""
        self._wake = wake
        self._paths: queue.Queue[bytes] = queue.Queue(MAX_PATHS)
        self._folders: tuple[str, ...] = ()
        self._changed = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def set(self, folders: Iterable[str]) -> None:
        """Watch these folders and what is below them, and no others; absolute paths."""
        wanted = tuple(sorted(folders))
        if wanted == self._folders:
            return
        self._folders = wanted
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
            self._thread.start()

    def take(self) -> list[bytes]:
        """Changed paths, absolute, since the last call."""
        found: dict[bytes, None] = {}
        while True:
            try:
                found[self._paths.get_nowait()] = None
            except queue.Empty:
                return list(found)

    def close(self) -> None:
        """Stop watching."""
        self._stopping = True
        self._changed.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._stopping:
            self._changed.clear()
            folders = [folder for folder in self._folders if os.path.isdir(folder)]
            if not folders:
                self._changed.wait()
                continue
            try:
                self._watch(folders)
            except (OSError, RuntimeError, UnicodeError) as error:
                log.info("folders cannot be watched, changed files are found by scanning: %s", error)
                self._changed.wait(REST_S)

    def _watch(self, folders: list[str]) -> None:
        from watchfiles import watch  # noqa: PLC0415 - only once there is something to watch

        for changes in watch(
            *folders,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=self._changed,
            raise_interrupt=False,
            ignore_permission_denied=True,
        ):
            for _, path in changes:
                try:
                    self._paths.put_nowait(os.fsencode(path))
                except queue.Full:
                    break
            self._wake()
