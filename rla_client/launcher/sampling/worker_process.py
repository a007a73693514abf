"""Process of a worker.

It is a new interpreter, not a fork and not a second run of the launcher. No threads, locks or CUDA
contexts are inherited, and a launcher needs no `if __name__ == "__main__"`. It runs `worker_server.serve`.
To end a worker, the training process closes the pipes, waits `EXIT_WAIT_S`, kills, and always reaps.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection

EXIT_WAIT_S = 5.0


class WorkerProcess:
    """One process with its two pipes: for requests, and for the life of this process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        life_read, self._life = os.pipe()
        start = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from rla_client.launcher.sampling.worker_server import serve; "
            f"serve({theirs.fileno()}, {life_read}, {os.getpid()})"
        )
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", start],
                pass_fds=(theirs.fileno(), life_read),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the training process's to handle
            )
        finally:
            theirs.close()
            os.close(life_read)
        self.pipe = Connection(ours.detach())

    def hang_up(self) -> None:
        """Tell the process to end."""
        if not self.pipe.closed:
            self.pipe.close()
            os.close(self._life)

    def end(self, deadline: float) -> int:
        """End and reap the process; returns its exit status (negative: a signal)."""
        self.hang_up()
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def end_processes(processes: list[WorkerProcess]) -> None:
    """End and reap processes, all at the same time."""
    deadline = time.monotonic() + EXIT_WAIT_S
    for process in processes:
        process.hang_up()
    for process in processes:
        process.end(deadline)
