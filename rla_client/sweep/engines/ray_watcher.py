"""Watcher that ends programs with their Ray worker.

The watcher is a shell in its own session, no child of the worker. It reads from a pipe that only the
worker holds open, and receives the lock file of a run before its start, and an empty line after its end.
At the end of the pipe it kills the process group in the lock file, and all holders of the lock, but not
processes that wait for it. No program runs without the watcher knowing its lock, and no code runs between
fork and exec.
"""

from __future__ import annotations

import os
import subprocess

WATCHER = """
exec 3<&0
cd /
{
    while read -r line; do
        case $line in
            /*) cd "$line" ;;
            *) lock=$line ;;
        esac
    done
    [ -n "$lock" ] || exit 0
    read -r group <"$lock" && [ "$group" -gt 1 ] && kill -KILL -- "-$group"
    found=1
    while [ -n "$found" ]; do  # a process that forks during the search is found in the next round
        found=
        for held in /proc/[0-9]*/fd/*; do
            [ "$held" -ef "$lock" ] || continue
            pid=${held#/proc/}
            pid=${pid%%/*}
            grep -q ^lock: "/proc/$pid/fdinfo/${held##*/}" && kill -KILL "$pid" && found=1
        done
    done
} <&3 &
"""


class _Watcher:
    """Watcher of this worker; its pipe is open until the worker ends."""

    def __init__(self) -> None:
        self._pipe = -1
        self._folder = ""

    def tell(self, lock: str) -> None:
        """Send the lock of a run that starts now, or an empty text after its end.

        Raises:
            OSError: there is no watcher, or the path cannot be sent.
        """
        if "\n" in lock:
            raise OSError(f"a path with a line break: {lock!r}")
        try:
            self._write(lock)
        except BrokenPipeError:  # it was killed
            os.close(self._pipe)
            self._pipe = -1
            self._write(lock)

    def _write(self, lock: str) -> None:
        folder, name = os.path.split(lock)
        lines = f"{name}\n"
        if self._pipe < 0:
            self._pipe, self._folder = _start_watcher(), ""
        if folder and folder != self._folder:  # sent once, because a shell reads byte by byte
            lines, self._folder = f"{folder}/\n{name}\n", folder
        os.write(self._pipe, lines.encode())


def _start_watcher() -> int:
    """Start a watcher; returns the pipe to it."""
    reading, writing = os.pipe()
    try:
        subprocess.run(
            ["/bin/sh", "-c", WATCHER],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    return writing


watcher = _Watcher()
