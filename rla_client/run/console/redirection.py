"""Redirection of standard descriptors into a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading

from rla_client.contract.process.descriptors import LEAST, OwnFile, identity, leads_to, standard_taken
from rla_client.run.console.pass_on import pass_on, ready

PIPE_BYTES = 1 << 20  # output of a time in which the reading process gets no processor
PIECE_BYTES = 1 << 16


class Redirection:
    """Redirection into a pipe of the standard descriptors that led to one file.

    Raises:
        OSError: there are no descriptors left.
    """

    def __init__(self, numbers: tuple[int, ...], before: OwnFile) -> None:
        self._numbers = numbers
        self._reading = threading.Lock()
        self.before = before
        with standard_taken():
            reading, writing = map(OwnFile, os.pipe())
        self.source, self._writing = reading, writing
        with contextlib.suppress(OSError):  # the user has many large pipes: this one stays small
            fcntl.fcntl(writing.number, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._identity = identity(writing.number)

    def lead_in(self) -> None:
        """Redirect the descriptors into the pipe."""
        for number in self._numbers:
            os.dup2(self._writing.number, number)
        self._writing.close()

    def has(self, number: int) -> bool:
        """Whether a standard descriptor leads into the pipe; a library may have redirected it."""
        return leads_to(number, self._identity)

    def lead_back(self) -> None:
        """Restore the descriptors, and then pass on the content of the pipe."""
        self.pass_on_rest()
        for number in filter(self.has, self._numbers):
            try:
                os.dup2(self.before.number, number)
            except OSError:  # somebody closed it, and nobody will empty the pipe
                with contextlib.suppress(OSError):
                    null = os.open(os.devnull, os.O_RDWR)
                    os.dup2(null, number)
                    os.close(null)
        self.pass_on_rest()  # what was printed between the two

    def pass_on_rest(self) -> None:
        """Pass on the content of the pipe."""
        with contextlib.suppress(OSError):
            for _ in range(PIPE_BYTES // PIECE_BYTES):
                if not ready([self.source.number], 0.0) or not self.pass_on():
                    break

    def pass_on(self) -> bool:
        """Pass on some content of the pipe, if there is any; False at its end."""
        with self._reading:
            if not ready([self.source.number], 0.0):
                return True
            data = os.read(self.source.number, PIECE_BYTES)
            pass_on(data, self.before.number)
        return bool(data)


def copy_standard(number: int) -> OwnFile:
    """A copy of a standard descriptor, or the null device where that is closed."""
    try:
        return OwnFile(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, LEAST))
    except OSError:
        return OwnFile(os.open(os.devnull, os.O_RDWR))
