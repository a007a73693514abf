"""Place of an item, from its log folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.layout import LOG
from rla_client.contract.run_index import RunIndex


@dataclass(frozen=True, slots=True)
class ItemPlace:
    """Database, table and index of an item."""

    data_root: str
    table: str
    index: str

    @classmethod
    def of(cls, log_dir: Path) -> ItemPlace | None:
        """The item with this log folder; None for a plain folder."""
        parts = log_dir.absolute().parts
        index = item_index(log_dir)
        if RunIndex.parse(index) is None or LOG not in parts[:-5]:
            return None
        at = len(parts) - 1 - parts[::-1].index(LOG, 5)
        return cls(str(Path(*parts[:at])), "/".join(parts[at + 1 : -4]), index)


def item_index(log_dir: Path) -> str:
    """Index of the item with this log folder."""
    return "/".join(log_dir.absolute().parts[-4:])
