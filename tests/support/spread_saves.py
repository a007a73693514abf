"""Sharded saves of several machines, each with a data root of its own, written without torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.worker.sharded_master import PartFound, PartLook, look_all
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import (
    OWN_FOLDER,
    folder_name,
    is_only_of_the_making,
    parts_name,
    receipt_rank,
)
from rla_client.contract.sharded_checkpoint.publish import publish
from rla_client.contract.sharded_checkpoint.records import SaveIdentity
from support.replication_lab import ITEM
from support.sharded_folders import parts_path, write_part

FOLDER = f"checkpoint/{ITEM}"
TARGET = "folder:master"
SENT_AT = 1_700_000_000  # time of the files there


def name_of(save: SaveIdentity) -> str:
    return parts_name(save.name, save.step, save.token)


def final_of(save: SaveIdentity) -> str:
    return folder_name(save.name, save.step)


class Machine:
    """A data root, with some ranks of a job."""

    def __init__(self, root: Path, ranks: Sequence[int], target: str = TARGET) -> None:
        self.root, self.ranks, self.target = root, tuple(ranks), target
        self.folder = root / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, save: SaveIdentity, order: int = 1, keep: Retention | None = None) -> None:
        """All its ranks write."""
        for rank in self.ranks:
            write_part(self.folder, save, rank, order, beside=self.ranks, keep=keep)
        publish(self.folder, name_of(save))

    def send(self, session: TargetSession, save: SaveIdentity, at: int = SENT_AT) -> None:
        """As its agent does: the receipts last; `at`: time of the files there."""
        here = parts_path(self.folder, save)
        paths = [path for path in here.rglob("*") if path.is_file() and not is_only_of_the_making(path.name)]
        paths.sort(key=lambda path: receipt_rank(path.name) is not None)
        inner = os.fsencode(f"{FOLDER}/{PARTS_FOLDER}/{here.name}")
        session.make_folders([inner + b"/" + os.fsencode(OWN_FOLDER)])
        for path in paths:
            goal = inner + b"/" + os.fsencode(path.relative_to(here))
            temp = goal.rpartition(b"/")[0] + b"/.rla-tmp-" + os.urandom(4).hex().encode()
            file = SmallFile(goal, temp, path.read_bytes(), at, None, lambda: True)
            (result,) = session.put_many([file])
            assert isinstance(result, RemoteStat), result

    def look(
        self, session: TargetSession, save: SaveIdentity, *, replaces: bool = True, stands_by: bool = False
    ) -> PartFound:
        results: list[PartFound] = []
        look = PartLook(self.folder, os.fsencode(FOLDER), name_of(save), self.target, replaces, stands_by)
        look_all(session, [look], results)
        return results[0]

    def has_named(self, save: SaveIdentity) -> bool:
        """Whether the save has its name here, and all that the machine wrote of it."""
        final = self.folder / final_of(save)
        if parts_path(self.folder, save).exists() or not final.exists():
            return False
        return all((final / f"__{rank}_0.distcp").exists() for rank in self.ranks)
