"""The watcher of a Ray worker, which ends its programs with it.

A shell of its own session and no child of the worker, it reads from a pipe that the worker alone holds open.
It is told the lock file of a run before that starts and when it has ended. At the end of the pipe it kills
the process group whose number the lock file holds, and whatever holds the lock, but not who waits for it.
There is no moment at which a program runs and the watcher does not know of it, and nothing is run between
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
    while [ -n "$found" ]; do  # what forked while it was looked for left one for the next round
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
    """This worker's; its pipe is never closed but by the worker's end."""

    def __init__(self) -> None:
        self._pipe = -1
        self._folder = ""

    def tell(self, lock: str) -> None:
        """Name the lock of what is started now, or none.

        Raises:
            OSError: there is no watcher, or the name cannot be told.
        """
        if "\n" in lock:
            raise OSError(f"a path with a line break: {lock!r}")
        try:
            self._write(lock)
        except BrokenPipeError:  # somebody killed it
            os.close(self._pipe)
            self._pipe = -1
            self._write(lock)

    def _write(self, lock: str) -> None:
        folder, name = os.path.split(lock)
        lines = f"{name}\n"
        if self._pipe < 0:
            self._pipe, self._folder = _start_watcher(), ""
        if folder and folder != self._folder:  # told once, as a shell reads byte by byte
            lines, self._folder = f"{folder}/\n{name}\n", folder
        os.write(self._pipe, lines.encode())


def _start_watcher() -> int:
    """The pipe to a new one."""
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
