"""Writer of a bucket's lake.

The manifest is replaced last, on condition that it is still the one that the build began with. A build that
is killed therefore leaves objects that no manifest names, and of two builds at once one is refused. A later
build deletes objects that no manifest names, `KEEP_S` after they were written: another build or a reader may
need them until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Final

from rla_client.database.lake.bucket_lake import BucketLake
from rla_client.database.lake.lake_writer import Builder
from rla_client.database.lake.manifest import LAKE, TABLES, LakePart

KEEP_S: Final = 86400.0


class BucketBuilder(Builder):
    """Writes parts into the bucket and into the local copy that the build reads."""

    def __init__(self, lake: BucketLake) -> None:
        super().__init__(lake.root)
        self._lake = lake

    def write(self, part: str, name: str, write: Callable[[BinaryIO], None]) -> tuple[int, int]:
        """Write one file of a new part."""
        made = super().write(part, name, write)
        key = f"{LAKE}/{part}/{name}.parquet"
        self._lake.put(key, (self._lake.root / key).read_bytes())
        return made

    def fetch(self, part: LakePart, name: str) -> None:
        """Fetch one file of an old part."""
        self._lake.fetch(part, name)

    def put_manifest(self, data: bytes) -> None:
        """Replace the bucket's manifest, then the local one.

        Raises:
            BusyError: another build has replaced it since this one began.
        """
        self._lake.put_manifest(data)
        super().put_manifest(data)

    def sweep_bucket(self, now: float) -> None:
        """Delete objects of parts that the manifest does not name and that are `KEEP_S` old."""
        keep = {part.name for part in self.parts}
        self._lake.delete(
            [
                meta["path"]
                for meta in self._lake.list(f"{LAKE}/{TABLES}")
                if meta["path"].removeprefix(f"{LAKE}/").rpartition("/")[0] not in keep
                and now - meta["last_modified"].timestamp() > KEEP_S
            ]
        )
