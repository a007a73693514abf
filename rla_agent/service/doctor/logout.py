"""Findings about shared memory that is removed at logout."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings

FIRST_LOGIN_UID = 1000  # logind spares system users


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
