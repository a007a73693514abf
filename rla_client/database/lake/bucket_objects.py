"""Objects of a run in a bucket."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from rla_client.contract.layout import ARCHIVE_TESTER, is_samples_file
from rla_client.contract.run_index import RunIndex
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.lake.build import QUIET_S
from rla_client.database.lake.build_plan import SAMPLES_SHARE

if TYPE_CHECKING:
    from obstore import ObjectMeta


MAX_STAGED_BYTES: Final = 64 << 20  # of one object; a progress.csv has at most MAX_CSV_BYTES
PARTS: Final = ".rla-parts"  # see docs/reference/formats.md
SUMS: Final = "SHA256SUMS"
_INDEX_PARTS: Final = 4  # YYYY, MM, DD, name
RunName = tuple[str, str]


@dataclass(slots=True)
class Objects:
    """The objects of one run, as path in the item → object: of its log folder, samples and other kinds."""

    log: dict[str, ObjectMeta] = field(default_factory=dict)
    samples: dict[str, ObjectMeta] = field(default_factory=dict)
    others: list[tuple[str, str, ObjectMeta]] = field(default_factory=list)
    appended: float = 0.0

    @property
    def signature(self) -> str:
        """Digest of the log objects; differs after any change of one."""
        return _digest(self.log)

    @property
    def samples_signature(self) -> str:
        """Digest of the objects of samples; empty without any, or if one is too large."""
        files = {name: meta for name, meta in self.samples.items() if is_samples_file(name)}
        kept = files and all(meta["size"] <= MAX_STAGED_BYTES for meta in files.values())
        return _digest(files) if kept else ""

    @property
    def table_bytes(self) -> int:
        """Estimated bytes of the run's tables in a part, see `EndedRun`."""
        samples = sum(meta["size"] for meta in self.samples.values()) if self.samples_signature else 0
        return csv_bytes(self) + samples // SAMPLES_SHARE

    def ended(self, now: float) -> bool:
        """Whether the objects are complete and no longer written."""
        sums = self.log.get(SUMS)
        if sums is not None:
            return self.appended <= sums["last_modified"].timestamp()
        newest = max((meta["last_modified"].timestamp() for meta in self.log.values()), default=now)
        return not self.appended and now - newest >= QUIET_S


def _digest(objects: dict[str, ObjectMeta]) -> str:
    digest = hashlib.sha256()
    for name, meta in sorted(objects.items()):
        digest.update(f"{name}\0{meta['size']}\0{meta['e_tag']}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def item_of(key: str) -> tuple[str, RunName, str] | None:
    """Kind, run and path in the item of an object; of an archive_tester file the path is its name."""
    kind, *parts = plain_path(key).split("/")
    for at in range(1, len(parts) - _INDEX_PARTS + 1):
        index = "/".join(parts[at : at + _INDEX_PARTS])
        if kind == ARCHIVE_TESTER:
            index = str(PurePosixPath(index).with_suffix(""))
        if RunIndex.parse(index) is not None:
            path = "/".join(parts[at + _INDEX_PARTS :]) or parts[-1]
            return kind, ("/".join(parts[:at]), index), path
    return None


def plain_path(key: str) -> str:
    """Path of a key, with each `!XX` decoded to its byte."""
    raw = re.sub(rb"!([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), key.encode())
    return raw.decode("utf-8", "surrogateescape")


def csv_bytes(objects: Objects) -> int:
    """Bytes of a run's progress.csv."""
    meta = objects.log.get(PROGRESS_FILE)
    return meta["size"] if meta is not None else 0
