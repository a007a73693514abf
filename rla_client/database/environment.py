"""What a run was started with, as its environment.json tells: commit, packages, machine; an import's group.

The client writes the file (`rla_client/code/capture.py`), imports one with what the other tool knew. A few of
its values are fields of a run (`TOLD_HERE`): filters, tables and `rla show` know them. `compared` gives what
`rla diff` sets side by side: all of it but what says which process it was, rather than in what surroundings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

ENVIRONMENT_FILE = "environment.json"
TOLD_HERE = ("commit", "branch", "group", "job_type")
_OF_THE_PROCESS = ("format_version", "command", "code_backup", "summary")
_VARIABLES_OF_THE_PROCESS = ("RLA_", "SLURM_")  # identities of jobs, which differ always


def told_of(environment: Mapping[str, Any]) -> dict[str, str]:
    """Those of TOLD_HERE that an environment.json has."""
    git = environment.get("git")
    known = {**environment, **(git if isinstance(git, Mapping) else {})}
    return {name: value for name in TOLD_HERE if isinstance(value := known.get(name), str) and value}


def compared(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The values to compare, with dotted names; of the uncommitted diff its length and digest."""
    found: dict[str, Any] = {}
    for name, value in environment.items():
        if name not in _OF_THE_PROCESS:
            _flatten(name, value, found)
    return found


def _flatten(name: str, value: object, found: dict[str, Any]) -> None:
    if name.startswith(tuple(f"environment.{begin}" for begin in _VARIABLES_OF_THE_PROCESS)):
        return
    if name == "git.diff" and isinstance(value, Mapping):
        text = str(value.get("text") or "")
        if text:
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
            found["git.uncommitted"] = f"{text.count(chr(10))} lines, sha256 {digest}"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(f"{name}.{key}", item, found)
    elif value is not None:
        found[name] = value
