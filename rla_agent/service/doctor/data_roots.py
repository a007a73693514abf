"""Findings about the data roots of known runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.state_disk import FREE_INODES
from rla_agent.service.doctor.surroundings import Surroundings

ROOT_FREE_BYTES = 100 << 20


def check_roots(around: Surroundings) -> Iterator[Finding]:
    """The data roots of the runs that the agent knows."""
    runs = around.status["runs"] if around.status else []
    for root in sorted({run["root"] for run in runs if run["live"]}):
        if not os.path.isdir(root):
            what = f"the data root {root} is not here"
            yield Finding("root-missing", "warning", what, "mount it, then: rla-agent restart")
            continue
        if not os.access(root, os.W_OK):
            what = f"the data root {root} cannot be written"
            yield Finding("root-permissions", "fault", what, f"chmod u+w {root}")
        free = shutil.disk_usage(root).free
        if free < ROOT_FREE_BYTES:
            what = f"the disk of the data root {root} has {free >> 20} MiB free"
            fix = "free space there; rows wait in the spool until then"
            yield Finding("root-space", "warning", what, fix)
        disk = os.statvfs(root)
        if disk.f_files and disk.f_favail < FREE_INODES:
            what = f"the disk of the data root {root} has {disk.f_favail} inodes left"
            yield Finding("root-space", "warning", what, "delete small files there; rows wait until then")
