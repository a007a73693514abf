"""Selection of items by table, date or kind."""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import dataclass
from typing import Final

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.run_index import RunIndex

_DATE: Final = re.compile(r"\d{4}(/\d{2}(/\d{2}(/\d{2}(-\d{2}(-\d{2}(-\d{1,6})?)?)?)?)?)?")
_ITEM_PARTS: Final = 6  # kind, table, YYYY, MM, DD, name


@dataclass(frozen=True, slots=True)
class ItemSelection:
    """Selection of items: all fields must match.

    Attributes:
        table: glob for the task table name.
        index: glob for `YYYY/MM/DD/name`.
        since, until: `YYYY/MM/DD[/HH-MM-SS-ffffff]`, until included by prefix.
        kinds: data kinds.

    Raises:
        ArgumentError: a date has another form, or there is no such kind.
    """

    table: str = "*"
    index: str = "*"
    since: str = ""
    until: str = ""
    kinds: tuple[str, ...] = DEFAULT_LOG_TYPES

    def __post_init__(self) -> None:
        """Check for fields that would select nothing."""
        for name, value in (("since", self.since), ("until", self.until)):
            if value and not _DATE.fullmatch(value):
                raise ArgumentError(f"{name} is a date like 2026/11/21 or 2026/11/21/09-30-01; got {value!r}")
        for kind in self.kinds:
            if kind not in DEFAULT_LOG_TYPES:
                raise ArgumentError(
                    f"there is no kind {kind!r}; the kinds are {', '.join(DEFAULT_LOG_TYPES)}"
                )

    def takes(self, table: str, index: RunIndex) -> bool:
        """Whether an item is selected."""
        date = index.record_date
        return (
            fnmatch.fnmatchcase(table, self.table)
            and fnmatch.fnmatchcase(index.path, self.index)
            and (not self.since or date >= self.since)
            and (not self.until or date[: len(self.until)] <= self.until)
        )


def item_of(path: bytes) -> tuple[str, RunIndex] | None:
    """Table and index of an item's folder, or of an archive_tester file."""
    parts = os.fsdecode(path).split("/")
    index = RunIndex.parse("/".join(parts[-4:])) if len(parts) >= _ITEM_PARTS else None
    return None if index is None else ("/".join(parts[1:-4]), index)


def chosen(path: bytes, selection: ItemSelection) -> bool:
    """Whether a path is that of a selected item, or an archive_tester file of one."""
    found = item_of(path)
    return found is not None and selection.takes(*found)


def item_of_file(path: str) -> str | None:
    """`table/YYYY/MM/DD/name` of a file's path below the data root."""
    parts = path.split("/")
    for end in range(_ITEM_PARTS, len(parts)):
        if RunIndex.parse("/".join(parts[end - 4 : end])) is not None:
            return "/".join(parts[1:end])
    return None
