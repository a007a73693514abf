"""Retention of sharded checkpoints: the rules of checkpoint files, applied to whole ones."""

from __future__ import annotations

from pathlib import Path

from rla_client.contract.checkpoint.checkpoint_retention import Retention, Saved, remove_beside, superseded
from rla_client.contract.checkpoint.sharded_files import (
    FOLDER_ENDING,
    Whole,
    parse_folder_name,
    parse_parts_name,
)
from rla_client.contract.checkpoint.sharded_publish import (
    finals_of,
    look,
    parts_of,
    read_whole,
    remove,
    remove_final,
)


def list_whole(folder: Path, name: str) -> list[tuple[str, Whole]]:
    """The whole checkpoints of one name: folder's name, and what it says of itself; oldest first."""
    found = []
    for final in finals_of(folder):
        parsed = parse_folder_name(final)
        whole = read_whole(folder / final) if parsed is not None and parsed[0] == name else None
        if whole is not None and (whole.save.name, whole.save.step) == parsed:
            found.append((final, whole))
    return sorted(found, key=lambda one: one[1].order)


def remove_superseded_sharded(folder: Path, name: str, run: str, keep: Retention) -> list[str]:
    """Delete whole checkpoints that `keep` does not hold; call it once the newest is whole.

    What is older than the newest whole one and not whole itself goes, too: nobody will complete it.

    Returns:
        Names of the folders that were removed. Those of another run never are.

    Raises:
        OSError: one could not be removed.
    """
    ours = [(final, whole) for final, whole in list_whole(folder, name) if whole.save.run == run]
    gone = superseded([Saved(final, whole.stamp) for final, whole in ours], keep)
    for entry in gone:
        remove_final(folder, entry.file)
        remove_beside(folder, entry.file.removesuffix(FOLDER_ENDING), entry.stamp)
    if ours:
        _remove_incomplete(folder, name, run, ours[-1][1])
    return [entry.file for entry in gone]


def _remove_incomplete(folder: Path, name: str, run: str, newest: Whole) -> None:
    for parts in parts_of(folder):
        parsed = parse_parts_name(parts)
        if parsed is None or parsed[0] != name:
            continue
        try:
            receipts = list(look(folder, parts).receipts.values())
        except FileNotFoundError:
            continue
        told = [receipt.order for receipt in receipts if receipt.save.run == run]
        if told and max(told) < newest.order:
            remove(folder, parts)
