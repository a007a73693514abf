"""Findings about the disk of the state folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.contract.agent.places import STATE_VARIABLE
from rla_client.contract.filesystem.file_systems import file_system_type, network_file_system

TMPFS = 0x01021994
RAMFS = 0x858458F6
FREE_INODES = 1000


def check_state_disk(around: Surroundings) -> Iterator[Finding]:
    """What the state folder lies on, and how much room there is."""
    state = around.places.state
    network = network_file_system(state)
    if network is not None:
        level = "warning" if network == "FUSE" else "fault"
        what = f"the state folder {state} is on {network}, where locks cannot be trusted"
        yield Finding("state-network", level, what, f"set {STATE_VARIABLE} to a folder on a local disk")
    elif file_system_type(state) in {TMPFS, RAMFS}:
        what = f"the state folder {state} is in memory: a reboot loses rows that are not stored yet"
        yield Finding("state-volatile", "warning", what, f"set {STATE_VARIABLE} to a folder on a disk")
    if not state.exists():
        return
    disk = os.statvfs(state)
    least = around.config.agent.min_free_fraction
    if disk.f_bavail < disk.f_blocks * least:
        free = disk.f_bavail * disk.f_frsize >> 20
        what = f"the disk of {state} has {free} MiB free, less than {least:.0%}: rows are lost"
        yield Finding("state-space", "fault", what, "free space there, or lower AGENT.min_free_fraction")
    if disk.f_files and disk.f_favail < FREE_INODES:
        what = f"the disk of {state} has {disk.f_favail} inodes left"
        yield Finding("state-space", "fault", what, "delete small files there")
