"""Writer thread of a video's frames."""

from __future__ import annotations

import _thread
import fcntl
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from rla_client.contract.process.descriptors import OwnFile, lowest_own
from rla_client.media import job_sender
from rla_client.media.pixel_sender import Pixels

if TYPE_CHECKING:
    from numpy.typing import NDArray


BUFFERS = 3  # frames that are not written yet, at most


class WriteBehind:
    """Writes the frames of a video in a thread; a copy into warm memory takes a tenth of a write's time.

    Each write has an explicit offset, so that no caller waits for the thread: a caller that needs a frame in
    the file writes the same bytes to the same offset. The caller writes a frame itself if no buffer is free,
    or if there is no further thread or descriptor. A frame that the thread could not write stays pending
    until `finish` writes it.
    """

    def __init__(self) -> None:
        self._pending: dict[int, NDArray[np.uint8]] = {}  # by offset
        self._free: list[NDArray[np.uint8]] = []
        self._queue: SimpleQueue[tuple[int, NDArray[np.uint8]] | None] = SimpleQueue()
        self._threads: list[None] = []  # one entry; signal handlers may add further ones
        self._over = False  # buffers are not reused

    def start(self, number: int) -> None:
        """Start the thread for the file with descriptor `number`, unless it runs already."""
        if self._threads:
            return
        with suppress(OSError, RuntimeError):
            file = OwnFile(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, lowest_own()))
            self._threads.append(None)
            try:
                _thread.start_new_thread(self._run, (file,))
            except RuntimeError:
                self._threads.pop()
                file.close()

    def take(self, pixels: Pixels, at: int) -> bool:
        """Copy a frame for offset `at`; returns False if the caller has to write it."""
        if self._over or not self._threads or len(self._pending) >= BUFFERS:
            return False
        try:
            buffer = self._free.pop()
        except IndexError:
            try:
                buffer = np.empty(pixels.total_bytes, np.uint8)
            except MemoryError:
                return False
        pixels.copy_into(buffer.data)
        self._pending[at] = buffer
        self._queue.put((at, buffer))
        return True

    def finish(self, number: int) -> None:
        """Write all pending frames to the file with descriptor `number`. Later frames are refused.

        Raises:
            OSError: the file cannot be written.
        """
        self._over = True
        for at, buffer in self._pending.copy().items():
            job_sender.write_all(number, buffer.data, at)

    def end(self) -> None:
        """End the thread; may be called twice."""
        for _ in self._threads:
            self._queue.put(None)

    def _run(self, file: OwnFile) -> None:
        with file:
            while (entry := self._queue.get()) is not None:
                at, buffer = entry
                with suppress(OSError):
                    job_sender.write_all(file.number, buffer.data, at)
                    del self._pending[at]
                    if not self._over:
                        self._free.append(buffer)
