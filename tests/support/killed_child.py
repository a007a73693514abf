"""A child process that is killed at one of its file operations."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

_OS = "rename link remove mkdir rmdir listdir truncate utime"
SEEN = frozenset(
    (
        "open",
        *(
            f"os.{call}"
            for call in ["rename", "link", "remove", "mkdir", "rmdir", "listdir", "truncate", "utime"]
        ),
    )
)


def killed_at(calls: int, work: Callable[[], object]) -> bool:
    """Do `work` in a child that is killed at its operation number `calls`; False where it came to its end."""
    child = os.fork()
    if child == 0:
        left = calls

        def count(event: str, _arguments: object) -> None:
            nonlocal left
            if event in SEEN:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - told, and the parent fails
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or status == 0, status
    return os.WIFSIGNALED(status)
