"""Copies by several threads: nobody writes to the destination once the call has returned or raised."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from support.waiting import wait_until

from rla_client.stream import memcpy


def test_a_child_that_is_forked_during_a_copy_waits_for_nobody() -> None:
    share = memcpy._Share([])
    assert share.owner("helper") == "helper"  # whose thread the child has not
    memcpy._running.add(share)
    child = os.fork()
    if child == 0:
        memcpy.copy_memory([])
        os._exit(0)
    memcpy._running.clear()
    try:
        wait_until(lambda: os.waitpid(child, os.WNOHANG)[0] == child, 10, "end of the child")
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise


def test_copies_interrupted_by_signals_leave_no_writer_behind() -> None:
    """Exceptions from a signal handler at any moment: afterwards nobody writes to the target."""
    code = """
import ctypes, mmap, random, signal, sys
from rla_client.stream.memcpy import PARALLEL_MIN_BYTES, copy_memory, wait_for_copies
import rla_client.stream.memcpy as module
module.os.sched_getaffinity = lambda pid: range(4)
size = 2 * PARALLEL_MIN_BYTES
source = ctypes.create_string_buffer(b"s" * 1024, size)
armed = False
def handler(_number, frame):
    if armed and frame is not None and frame.f_code.co_filename != "<string>":  # not while this one is caught
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
interrupted = 0
while interrupted < 20:
    target = mmap.mmap(-1, size)
    view = (ctypes.c_char * size).from_buffer(target)
    address = ctypes.addressof(view)
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 6e-3), 3e-4)
    try:
        armed = True
        copy_memory([(address, ctypes.addressof(source), size)])
    except KeyboardInterrupt:
        interrupted += 1
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
    wait_for_copies()
    del view
    target.close()
print(interrupted)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
