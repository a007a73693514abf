"""New items that appear whole: copies of runs (archive, migrate), and runs made of foreign logs.

They are built under `.rla/copies/` and moved to their places by a journal entry; see `changes`.

`rla rm` and the master: what it lacks, and moving runs to its trash. The agent package does the work.

It is started as a process of its own (`rla-agent transfer …`), with the runs on its stdin.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rla_client.config.schema import require_config
from rla_client.contract.errors import DatabaseError
from rla_client.contract.files import TEMP_PREFIX, discard, fsync_file, fsync_folder, held_folder
from rla_client.contract.paths import find_places
from rla_client.database.changes import (
    ENTRY,
    HIDDEN,
    Move,
    carry_out,
    hidden_base,
    refuse_live,
    unfinished,
    write_entry,
)
from rla_client.database.tree import Item


def copy_items(
    data_root: Path, items: Sequence[Item], target: Callable[[Item], str], now: float
) -> list[Item]:
    """Copy the items of one run, all of them or none; the caller holds `changing`.

    Args:
        data_root: the database.
        items: items of one run.
        target: where an item's table goes, relative to the data root, such as `arc/log/task`.
        now: Unix seconds.

    Returns:
        Those that were copied; items that are already there are left as they are.

    Raises:
        LiveRunError: the run is being written.
        OSError: no space and the like; nothing is left of the copy.
    """
    refuse_live(data_root, items, now)
    name = f"{int(now)}-{secrets.token_hex(4)}"
    folder = f"{HIDDEN}/copies/{name}"
    moves: list[Move] = []
    copied = []
    bases = {HIDDEN}
    try:
        for item in items:
            fresh = [(path, _target_path(item, path, target(item))) for path in item.paths]
            fresh = [(path, final) for path, final in fresh if not os.path.lexists(data_root / final)]
            for path, final in fresh:
                base = hidden_base(data_root, Path(final).parts[0])
                bases.add(base)
                staging = f"{base}/copies/{name}/items"
                with held_folder(data_root, staging, create=True) as here:
                    _copy(path, here / str(len(moves)))
                moves.append((f"{staging}/{len(moves)}", final))
            if fresh:
                copied.append(item)
        if moves:
            write_entry(data_root, folder, now, "moving", moves)
            carry_out(data_root, moves)
    finally:
        if not (data_root / folder / ENTRY).exists() or not unfinished(data_root, moves):
            for base in bases:
                discard(data_root, f"{base}/copies", name)
    return copied


def _target_path(item: Item, path: str, table: str) -> str:
    day = item.index.rsplit("/", 1)[0]
    return f"{table}/{day}/{os.path.basename(path)}"


def _copy(source: str, target: Path) -> None:
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, symlinks=True, ignore=_not_to_copy, copy_function=_copy_file)
        for folder, _, _ in os.walk(target):
            fsync_folder(folder)
    else:
        _copy_file(source, os.fspath(target))


def _not_to_copy(folder: str, names: list[str]) -> list[str]:
    """Temp files, sockets and pipes."""
    skipped = []
    for name in names:
        path = os.path.join(folder, name)
        plain = os.path.islink(path) or os.path.isdir(path) or os.path.isfile(path)
        if name.startswith(TEMP_PREFIX) or not plain:
            skipped.append(name)
    return skipped


def _copy_file(source: str, target: str) -> str:
    shutil.copy2(source, target, follow_symlinks=False)
    if not os.path.islink(target):
        fsync_file(target)
    return target


def publish(data_root: Path, build: Callable[[Path], dict[str, str]], now: float) -> None:
    """Make new items, each of which appears whole; the caller holds `changing`.

    Killed in between, the next command that changes the database makes the rest of them appear, or none.

    Args:
        data_root: the database.
        build: fills a fresh folder and returns {path in it: final path relative to the data root},
            in the order in which they appear.
        now: Unix seconds.

    Raises:
        OSError: no space and the like; nothing is left.
    """
    name = f"{int(now)}-{secrets.token_hex(4)}"
    folder = f"{HIDDEN}/copies/{name}"
    moves: list[Move] = []
    try:
        with held_folder(data_root, f"{folder}/items", create=True) as staging:
            final = build(staging)
        moves = [(f"{folder}/items/{staged}", target) for staged, target in final.items()]
        if moves:
            os.sync()  # once, instead of an fsync for each of many small files
            write_entry(data_root, folder, now, "moving", moves)
            carry_out(data_root, moves)
    finally:
        if not (data_root / folder / ENTRY).exists() or not unfinished(data_root, moves):
            discard(data_root, f"{HIDDEN}/copies", name)


def lacking(data_root: Path, items: Sequence[Item]) -> dict[str, Any] | None:
    """What of these items no master has: `files`, `bytes`; `pruned`: files that only a master has.

    None where this machine sends nothing of the database, or cannot tell.
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
    """Move items on the master to its trash; nobody sends them there again.

    Raises:
        DatabaseError: no rla_config.yaml, or the master did not do it; nothing was changed here.
    """
    source = config if config is not None else _config_for(data_root)
    done = _transfer("remove", data_root, items, "--config", str(source.absolute()))
    if done.returncode != 0:
        message = "the master has not moved them to its trash, so nothing was removed here either"
        raise DatabaseError(message)


def _config_for(data_root: Path) -> Path:
    return require_config(Path.cwd(), data_root.absolute())


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
        input=b"".join(os.fsencode(run) + b"\0" for run in runs),  # names may have blanks and line breaks
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.PIPE if capture else None,
        check=False,
    )
