"""A process that has used up its file descriptors: one of its own, or this one for a moment."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HEAD = """
import os, resource, sys

taken = []

def take_all():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass

def give_one():
    os.close(taken.pop())
"""


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Opening anything fails with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def run_with_few(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new process: after its `take_all()` no descriptor is free, `give_one()` frees one."""
    command = [sys.executable, "-c", HEAD + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
