"""Removal on the master, by a process of the agent package.

The process is `rla-agent transfer …`, which reads the runs from its stdin.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rla_client.config.project import require_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import DatabaseError
from rla_client.database.tree.items import Item


def lacking(data_root: Path, items: Sequence[Item]) -> dict[str, Any] | None:
    """Counts of the items' files: `files` and `bytes` that no master has, `pruned` that only a master has.

    None if this machine does not replicate the database, or the counts cannot be determined.
    """
    if not (find_places().state / "replicate" / "ledger.db").exists():
        return None
    done = _transfer("lacks", data_root, items, capture=True)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return None
    return found if done.returncode == 0 and found.get("replicated") else None


def remove_on_master(data_root: Path, items: Sequence[Item], config: Path | None) -> None:
    """Move items on the master to its trash; they are never sent there again.

    Raises:
        DatabaseError: there is no rla_config.yaml, or the master refused; nothing was changed here.
    """
    source = config if config is not None else require_config(Path.cwd(), data_root.absolute())
    done = _transfer("remove", data_root, items, "--config", str(source.absolute()))
    if done.returncode != 0:
        message = "the master has not moved them to its trash, so nothing was removed here either"
        raise DatabaseError(message)


def _transfer(
    name: str, data_root: Path, items: Sequence[Item], *words: str, capture: bool = False
) -> subprocess.CompletedProcess[bytes]:
    kinds = sorted({item.kind for item in items})
    runs = sorted({f"{item.table}/{item.index}" for item in items})
    command = [sys.executable, "-m", "rla_agent", "transfer", name, "-", "--data-root", str(data_root)]
    for kind in kinds:
        command += ["--kind", kind]
    sys.stdout.flush()
    return subprocess.run(
        [*command, *words],
        input=b"".join(os.fsencode(run) + b"\0" for run in runs),  # names may hold blanks and line breaks
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.PIPE if capture else None,
        check=False,
    )
