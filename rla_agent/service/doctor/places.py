"""Findings about the agent's files on disk.

These are the configuration, folders, disks, interpreters and data roots.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress

from rla_agent.model.problem import Finding
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.contract.agent.places import RUNTIME_VARIABLE, STATE_VARIABLE, why_elsewhere
from rla_client.contract.errors import PlaceError, RlaError
from rla_client.contract.filesystem.file_systems import file_system_type, network_file_system
from rla_client.contract.filesystem.trusted_paths import folder_problem, program_problem
from rla_client.contract.spool.segments import stream_names

TMPFS = 0x01021994
RAMFS = 0x858458F6
ROOT_FREE_BYTES = 100 << 20
FREE_INODES = 1000
ENTRIES_LOOKED_AT = 10_000


def check_config(around: Surroundings) -> Iterator[Finding]:
    """Every fault of the configuration."""
    for fault in around.config_faults:
        what = f"{around.config_path}: {fault}"
        yield Finding("config", "fault", what, "correct that line, then: rla-agent check-config")


def check_folders(around: Surroundings) -> Iterator[Finding]:
    """State and runtime folders: ours, private, writable, on a path that nobody else can change."""
    for name, level, folder, variable in (
        ("state", "fault", around.places.state, STATE_VARIABLE),
        ("runtime", "warning", around.places.runtime, RUNTIME_VARIABLE),  # the agent finds another one
    ):
        problem = folder_problem(folder)
        if problem is not None:
            yield Finding(f"{name}-permissions", level, problem.what, _fix(problem, variable))
        elif folder.exists() and stat.S_IMODE(folder.stat().st_mode) != 0o700:  # noqa: PLR2004 - the owner's
            what = f"{folder} has mode {stat.S_IMODE(folder.stat().st_mode):o} instead of 700"
            yield Finding(f"{name}-permissions", level, what, f"chmod 700 {folder}")
    elsewhere = why_elsewhere()
    if elsewhere is not None:
        what = f"the state is in {around.places.state}: {elsewhere.what}"
        yield Finding("state-elsewhere", "warning", what, _fix(elsewhere, STATE_VARIABLE))


def _fix(problem: PlaceError, variable: str) -> str:
    return problem.fix.removeprefix("run: ").replace("use a folder", f"set {variable} to a folder")


def check_interpreters(around: Surroundings) -> Iterator[Finding]:
    """Interpreters that somebody else could exchange: this one, and those of the runs in the spool."""
    programs = {sys.executable}
    with suppress(OSError):
        for name in stream_names(around.places.spool):
            with suppress(RlaError, OSError):
                programs.add(read_opening(around.places.spool / name)[0].python)
    for program in sorted(filter(os.path.exists, programs)):
        problem = program_problem(program)
        if problem is not None:
            what = f"the agent draws no figures with {program}: {problem.what}"
            other = (
                "train with an interpreter that only you and root can change, such as: python3 -m venv ~/venv"
            )
            fix = problem.fix.removeprefix("run: ") if problem.fix.startswith("run: ") else other
            yield Finding("interpreter-unsafe", "warning", what, fix)


def check_owners(around: Surroundings) -> Iterator[Finding]:
    """Files in the state folder that belong to root, after a call with sudo, or to somebody else."""
    state = around.places.state
    looked = 0
    for folder, folders, files in os.walk(state):
        for name in (*folders, *files):
            looked += 1
            path = os.path.join(folder, name)
            try:
                owner = os.lstat(path).st_uid
            except OSError:
                continue
            if owner != os.geteuid():
                fix = f"sudo rm -r {path}" if owner else f"sudo chown -R {around.user} {state}"
                yield Finding("state-owner", "fault", f"{path} belongs to uid {owner}", fix)
                return
            if looked > ENTRIES_LOOKED_AT:
                return


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
