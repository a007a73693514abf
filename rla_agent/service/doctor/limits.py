"""Findings about limits of the machine."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import suppress

from rla_agent.model.problem import WITHOUT_LIMITS, Finding
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.contract.agent.agent_environment import tight_limits

LEAST_FILES = 1024  # about 300 clients and their outputs
LEAST_WATCHES = 8192
LEAST_SHM_BYTES = 256 << 20  # docker gives 64 MB; two slots for a small network


def check_limits(around: Surroundings) -> Iterator[Finding]:
    """Descriptors, watches and shared memory."""
    pid = around.agent_pid or os.getpid()
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except OSError:
        hard = resource.RLIM_INFINITY
    if hard != resource.RLIM_INFINITY and hard < LEAST_FILES:
        what = f"the agent may open {hard} files, three a client"
        fix = f"ulimit -Hn {LEAST_FILES} or more before it starts; LimitNOFILE= in a unit"
        yield Finding("limit-files", "warning", what, fix)
    for limit in tight_limits() if around.status is None else ():  # a running agent tells it itself
        what = f"an agent that is started from here: {limit}"
        yield Finding("limit-agent", "warning", what, WITHOUT_LIMITS)
    with suppress(OSError, ValueError):
        watches = int((around.system / "proc/sys/fs/inotify/max_user_watches").read_text(encoding="ascii"))
        if watches < LEAST_WATCHES:
            what = f"{watches} inotify watches: new files of users reach the master up to 60 s late"
            yield Finding("limit-watches", "note", what, "sysctl fs.inotify.max_user_watches=65536")
    memory = around.system / "dev/shm"
    if memory.is_dir() and (total := shutil.disk_usage(memory).total) < LEAST_SHM_BYTES:
        what = (
            f"/dev/shm holds {total >> 20} MiB: checkpoints stop the training for as long as the disk takes"
        )
        yield Finding("limit-shm", "warning", what, "give the container more: docker run --shm-size=8g")
