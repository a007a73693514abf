"""Atomic creation of items.

A new or copied item appears complete, or not at all.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, fsync_file, fsync_folder
from rla_client.contract.filesystem.safe_paths import discard, held_folder
from rla_client.database.changes.journal import ENTRY, HIDDEN, Move, carry_out, hidden_base, write_entry
from rla_client.database.changes.live_runs import refuse_live
from rla_client.database.tree.items import Item


@contextmanager
def _appearing(data_root: Path, now: float) -> Iterator[tuple[str, list[Move]]]:
    """Name of a staging folder below `copies`, and its moves, added by the caller: all are made, or none."""
    name = f"{int(now)}-{secrets.token_hex(4)}"
    folder = f"{HIDDEN}/copies/{name}"
    moves: list[Move] = []
    try:
        yield name, moves
        if moves:
            write_entry(data_root, folder, now, "moving", moves)
            carry_out(data_root, moves)
    finally:
        unfinished = any(os.path.lexists(data_root / old) for old, _ in moves)
        if not (data_root / folder / ENTRY).exists() or not unfinished:
            for base in {HIDDEN, *(old.partition("/copies/")[0] for old, _ in moves)}:
                discard(data_root, f"{base}/copies", name)


def copy_items(
    data_root: Path, items: Sequence[Item], target: Callable[[Item], str], now: float
) -> list[Item]:
    """Copy the items of one run, all of them or none; the caller holds `changing`.

    Args:
        data_root: the database.
        items: items of one run.
        target: new folder of an item's table, relative to the data root, such as `arc/log/task`.
        now: Unix seconds.

    Returns:
        The copied items; items that exist already are left as they are.

    Raises:
        LiveRunError: the run is being written.
        OSError: for instance no space; nothing of the copy stays.
    """
    refuse_live(data_root, items, now)
    copied = []
    with _appearing(data_root, now) as (name, moves):
        for item in items:
            day = item.index.rsplit("/", 1)[0]
            finals = {path: f"{target(item)}/{day}/{os.path.basename(path)}" for path in item.paths}
            fresh = {path: to for path, to in finals.items() if not os.path.lexists(data_root / to)}
            for path, final in fresh.items():
                staging = f"{hidden_base(data_root, Path(final).parts[0])}/copies/{name}/items"
                moves.append((f"{staging}/{len(moves)}", final))
                with held_folder(data_root, staging, create=True) as here:
                    _copy(path, here / os.path.basename(moves[-1][0]))
            if fresh:
                copied.append(item)
    return copied


def _copy(source: str, target: Path) -> None:
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, symlinks=True, ignore=_not_to_copy, copy_function=_copy_file)
        for folder, _, _ in os.walk(target):
            fsync_folder(folder)
    else:
        _copy_file(source, os.fspath(target))


def _not_to_copy(folder: str, names: list[str]) -> list[str]:
    """Names of temp files, sockets and pipes."""
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
    """Create new items, each of which appears complete; the caller holds `changing`.

    After a kill in between, the next command that changes the database makes the remaining items appear,
    or none.

    Args:
        data_root: the database.
        build: fills a new folder and returns {path in it: final path relative to the data root}, in the
            order in which the items appear.
        now: Unix seconds.

    Raises:
        OSError: for instance no space; nothing stays.
    """
    with _appearing(data_root, now) as (name, moves):
        folder = f"{HIDDEN}/copies/{name}/items"
        with held_folder(data_root, folder, create=True) as staging:
            moves += [(f"{folder}/{staged}", final) for staged, final in build(staging).items()]
        if moves:
            os.sync()  # once, instead of an fsync for each of many small files
