"""Connection to a master through a proxy command.

ProxyJump or ProxyCommand of the ssh config name it. The command runs in a shell, as OpenSSH runs it, with a
socket of ours as its stdin and stdout. Its stderr (the jump host's key has changed, no such program) is
stored, because it has the reason when the command ends.
"""

from __future__ import annotations

import socket
import subprocess
import threading
from collections import deque
from contextlib import ExitStack, suppress
from typing import Final

from rla_client.contract.text.terminal_text import printable

_READ_BYTES: Final = 4096
_KEPT_BLOCKS: Final = 2
_SHOWN_CHARS: Final = 300
_LAST_WORDS_S: Final = 1.0  # wait for the stderr of a command that ended


class ProxySocket(socket.socket):
    """Our end of a command's stdin and stdout; closing it ends the command."""

    _process: subprocess.Popen[bytes]
    _said: deque[bytes]
    _listener: threading.Thread

    @classmethod
    def run(cls, command: str) -> ProxySocket:
        """Start a command.

        Raises:
            OSError: no process or descriptor is available for it.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            made = cls(fileno=ours.detach())
            end = theirs.fileno()
            with ExitStack() as failed:
                failed.callback(socket.socket.close, made)
                made._process = subprocess.Popen(
                    ["/bin/sh", "-c", f"exec {command}"], stdin=end, stdout=end, stderr=subprocess.PIPE
                )
                failed.pop_all()
        made._said = deque(maxlen=_KEPT_BLOCKS)
        made._listener = threading.Thread(target=made._listen, name="rla-ssh-proxy", daemon=True)
        made._listener.start()
        return made

    def _listen(self) -> None:
        """Read stderr to its end, so that a verbose command does not block; then reap it."""
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            while block := stderr.read1(_READ_BYTES):  # type: ignore[attr-defined]
                self._said.append(block)
        self._process.wait()

    def last_words(self) -> str:
        """The end of the command's stderr, as one line."""
        self._listener.join(_LAST_WORDS_S)
        lines = b"".join(self._said).decode("utf-8", "replace").splitlines()
        told = "; ".join(printable(line.strip()) for line in lines if line.strip("@ \t"))
        return told if len(told) <= _SHOWN_CHARS else "…" + told[-_SHOWN_CHARS:]

    def close(self) -> None:
        """Close our end, and end the command."""
        super().close()
        with suppress(ProcessLookupError):
            self._process.terminate()
