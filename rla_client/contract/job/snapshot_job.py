"""The job that stores a snapshot of a training.

It names a slot or a blob with the file's bytes. So the agent copies, and never unpickles.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.job.job_fields import count_field, token_field
from rla_client.contract.job.job_source import (
    ArenaSource,
    BlobSource,
    read_blob_name,
    read_slot_source,
    source_fields,
)
from rla_client.contract.layout import CHECKPOINT, LOG

SNAPSHOT_KIND = "snapshot"
SNAPSHOT_VERSION = 1
MAX_NAMES = 2  # gap_and_last writes itr_N.pkl and params.pkl
_NAME = re.compile(r"params\.pkl|itr_[0-9]{1,19}\.pkl")


@dataclass(frozen=True, slots=True)
class SnapshotJob:
    """One snapshot on its way to its folder.

    Attributes:
        token: 16 hex digits that name the save.
        order: nanoseconds since 1970 at the save, strictly growing in one run.
        kind: which folder of the run: log, or the item's checkpoint.
        names: file names that get this content.
        source: where the content lies. A slot's `skeleton_bytes` is the size of the whole file.
    """

    token: str
    order: int
    kind: str
    names: tuple[str, ...]
    source: ArenaSource | BlobSource

    def encode(self) -> dict[str, Any]:
        """Plain data for a JOB frame."""
        source = self.source
        return {
            "v": SNAPSHOT_VERSION,
            "token": self.token,
            "order": self.order,
            "kind": self.kind,
            "names": list(self.names),
            **source_fields(source),
            "size": source.skeleton_bytes if isinstance(source, ArenaSource) else source.size,
        }

    @classmethod
    def decode(cls, fields: object) -> SnapshotJob:
        """Check and read what a frame holds.

        Raises:
            RemoteProtocolError: not what `encode` makes, or a name that is not a snapshot's.
        """
        if not isinstance(fields, dict) or fields.get("v") != SNAPSHOT_VERSION:
            raise RemoteProtocolError("not a snapshot job of this version")
        token, kind, names = token_field(fields.get("token")), fields.get("kind"), fields.get("names")
        if kind not in {LOG, CHECKPOINT}:
            raise RemoteProtocolError("snapshots go into the folders log and checkpoint only")
        if not isinstance(names, list) or not 1 <= len(names) <= MAX_NAMES:
            raise RemoteProtocolError("names is not a short list")
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
            raise RemoteProtocolError(f"{names!r} are not names of snapshots")
        order, size = count_field(fields.get("order"), "order"), count_field(fields.get("size"), "size")
        if "blob" in fields:
            return cls(token, order, kind, tuple(names), BlobSource(read_blob_name(fields), size))
        return cls(token, order, kind, tuple(names), read_slot_source(fields, size, ()))
