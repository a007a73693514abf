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


BUFFERS = 3  # of frames on their way


class WriteBehind:
    """Puts frames into a film's file from a thread: a copy into warm memory takes a tenth of a write's time.

    Each write names its place in the file, so nobody ever waits for the thread: who needs a frame to be in
    the file writes the same bytes to the same place, and what finds no free buffer is written by the caller,
    as all is where there are no more threads or descriptors, or only one core. What the thread could not
    write stays pending until `finish` tries again.
    """

    def __init__(self) -> None:
        self._pending: dict[int, NDArray[np.uint8]] = {}  # by place in the file
        self._free: list[NDArray[np.uint8]] = []
        self._given: SimpleQueue[tuple[int, NDArray[np.uint8]] | None] = SimpleQueue()
        self._threads: list[None] = []  # it is one, but for signal handlers
        self._over = False  # no buffer is used again

    def start(self, number: int) -> None:
        """Start the thread, unless there is one, for the file that `number` leads to."""
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
        """Copy a frame that belongs at byte `at`; False where the caller is to write it."""
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
        self._given.put((at, buffer))
        return True

    def finish(self, number: int) -> None:
        """Have all frames in the file, which `number` leads to as well. No more are taken.

        Raises:
            OSError: as write(2) says.
        """
        self._over = True
        for at, buffer in self._pending.copy().items():
            job_sender.write_all(number, buffer.data, at)

    def end(self) -> None:
        """Let the thread end. Does no harm twice."""
        for _ in self._threads:
            self._given.put(None)

    def _run(self, file: OwnFile) -> None:
        with file:
            while (given := self._given.get()) is not None:
                at, buffer = given
                with suppress(OSError):
                    job_sender.write_all(file.number, buffer.data, at)
                    del self._pending[at]
                    if not self._over:
                        self._free.append(buffer)
