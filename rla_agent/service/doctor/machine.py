"""Findings about the machine.

These are limits of descriptors, the clock, and shared memory.
"""

from __future__ import annotations

import os
import re
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
CLOCK_SLACK_S = 60.0
FIRST_YEAR_S = 1_704_067_200  # 2024-01-01: an earlier clock was never set
FIRST_LOGIN_UID = 1000  # logind spares system users


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


def check_clock(around: Surroundings) -> Iterator[Finding]:
    """A clock that was never set, or that went back."""
    if around.now < FIRST_YEAR_S:
        yield Finding("clock", "fault", "the clock was never set", "timedatectl set-ntp true")
        return
    ahead = [
        (path.stat().st_mtime, path)
        for path in (around.places.log, around.places.database, around.places.lock)
        if path.exists()
    ]
    newest, path = max(ahead, default=(0.0, around.places.state))
    if newest > around.now + CLOCK_SLACK_S:
        what = f"{path} was written {newest - around.now:.0f} s in the future: the clock went back"
        fix = f"timedatectl set-ntp true; when the clock is right: touch {path}"
        yield Finding("clock", "warning", what, fix)


def check_shared_memory_at_logout(around: Surroundings) -> Iterator[Finding]:
    """Logind removes the shared memory of users who log out, and with it checkpoints that wait."""
    booted = (around.system / "run/systemd/system").is_dir()
    if not booted or os.getuid() < FIRST_LOGIN_UID or around.lingers:
        return
    settings = [around.system / "etc/systemd/logind.conf"]
    settings += sorted((around.system / "etc/systemd/logind.conf.d").glob("*.conf"))
    removes = "yes"
    for path in settings:
        if path.exists():
            found = re.findall(r"^\s*RemoveIPC\s*=\s*(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
            removes = found[-1] if found else removes
    if removes.lower() in {"yes", "true", "1", "on"}:
        what = "your shared memory is removed when you log out (RemoveIPC=yes), and checkpoints in it"
        yield Finding("remove-ipc", "warning", what, f"loginctl enable-linger {around.user}")
