"""Item of a run in the database.

An item is the run's folders, one of each kind. Folders are made exclusively: two runs that start in the same
microsecond get indices one microsecond apart.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import ARCHIVE_TESTER, FOLDER_KINDS, LOG, MADE_AT_ONCE, item_path
from rla_client.contract.run_index import RunIndex, shorten_info

SHORT_INFO_BYTES = 60  # for file systems whose names are shorter than usual (eCryptfs: 143)


@dataclass(frozen=True, slots=True)
class ItemFolders:
    """Folders of one run's data. They end with a slash, as RLA's do."""

    root: str
    table: str
    index: RunIndex
    opened: datetime

    def relative(self, kind: str) -> str:
        """Path of the item of a kind below the data root."""
        return item_path(kind, self.table, self.index.path)

    def folder(self, kind: str) -> str:
        """Absolute folder of a kind, with a closing slash."""
        return os.path.join(self.root, self.relative(kind)) + "/"

    @property
    def archive_file(self) -> str:
        """The plain-data archive of the run's manager."""
        return os.path.join(self.root, self.relative(ARCHIVE_TESTER)) + ".json"


def create_item(root: str, table: str, info: str, address: str) -> ItemFolders:
    """Make the folders of a new item.

    Raises:
        ArgumentError: the data root cannot be written.
    """
    opened = datetime.now()  # noqa: DTZ005 - indices are local time, as RLA's
    while True:
        index = RunIndex.make(opened, address, info)
        item = ItemFolders(os.path.abspath(root), table, index, opened)
        try:
            for kind in (*FOLDER_KINDS, ARCHIVE_TESTER):
                _check_links(item.root, item.relative(kind))
            log = Path(item.folder(LOG))
            log.parent.mkdir(parents=True, exist_ok=True)
            log.mkdir()
            for kind in MADE_AT_ONCE:
                Path(item.folder(kind)).mkdir(parents=True, exist_ok=True)
            Path(item.archive_file).parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            if not os.path.isdir(item.folder(LOG)):
                raise _cannot_write(root, error) from None
            opened += timedelta(microseconds=1)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG or len(info) <= SHORT_INFO_BYTES:
                raise _cannot_write(root, error) from None  # without mkdir's long chain of exceptions
            info = shorten_info(info, SHORT_INFO_BYTES)
        else:
            return item


def _check_links(root: str, relative: str) -> None:
    """Refuse a path below the data root that goes through another user's link, as the agent does.

    Raises:
        PermissionError: one does.
    """
    path = root
    for part in relative.split("/"):
        path = os.path.join(path, part)
        try:
            found = os.lstat(path)
        except OSError:
            return
        if stat.S_ISLNK(found.st_mode) and found.st_uid not in {0, os.geteuid()}:
            raise PermissionError(errno.EPERM, f"{path} is a link of uid {found.st_uid}, not yours")


def _cannot_write(root: str, error: OSError) -> ArgumentError:
    where = f" ({error.filename})" if error.filename else ""
    message = f"cannot make the run's folders below data_root {root}: {error.strerror or error}{where}"
    if error.errno == errno.EACCES:
        message += "; if several users share it: give its folders to one group, setgid, and use umask 002"
    return ArgumentError(message)
