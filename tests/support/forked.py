"""Forking the process of the tests: a child that hangs fails its test, and never outlives its parent.

The parent may have used PyTorch's thread pool: a child must not calculate with tensors.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
import traceback
from collections.abc import Callable

import pytest

from support.waiting import TIME_FACTOR

DEADLINE_S = 60.0
_PR_SET_PDEATHSIG = 1


def in_forked_child(body: Callable[[], bool], deadline_s: float = DEADLINE_S) -> bool:
    """Run `body` in a forked child, which ends without any clean-up; what it returned.

    The child is killed, and the test failed, after `deadline_s` seconds, `TIME_FACTOR` times as many.
    """
    patience_s = deadline_s * TIME_FACTOR
    child = os.fork()
    if child == 0:
        code = 2
        try:
            # when a time-out ends the worker, its pipe to pytest-xdist must not stay open in us
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            code = 0 if body() else 1
        except BaseException:  # noqa: BLE001 - pytest's own process must not go on twice
            traceback.print_exc()
        finally:
            os._exit(code)
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            assert code in {0, 1}, f"the forked child ended with {code}"
            return code == 0
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail(f"the forked child was not done within {patience_s:g} s")
