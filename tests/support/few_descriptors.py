"""A process that has used up its file descriptors."""

from __future__ import annotations

import subprocess
import sys

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


def run_with_few(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new process: after its `take_all()` no descriptor is free, `give_one()` frees one."""
    command = [sys.executable, "-c", HEAD + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
