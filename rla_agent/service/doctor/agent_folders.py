"""Findings about the state folder or the runtime folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.contract.agent.places import RUNTIME_VARIABLE, STATE_VARIABLE, why_elsewhere
from rla_client.contract.errors import PlaceError
from rla_client.contract.filesystem.trusted_paths import folder_problem

ENTRIES_LOOKED_AT = 10_000


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
