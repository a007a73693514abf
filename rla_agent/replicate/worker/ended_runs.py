"""Ended runs of a database, for their `SHA256SUMS`.

The last ended ones are remembered, since their folders are worth watching.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from rla_agent.replicate.checksums import SUMS_NAME, ChecksumsError, sums_name, write_checksums
from rla_agent.replicate.file_state import Local
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.worker.read_faults import ScanError
from rla_agent.replicate.worker.scan import Folder, Scanner, item_name
from rla_agent.replicate.worker.send_job import SendJob
from rla_client.contract.layout import ARCHIVE_TESTER, FOLDER_KINDS, LOG
from rla_client.contract.run_part import run_file_name
from rla_client.contract.text.terminal_text import printable

SETTLE_AT_ONCE: Final = 4
MAX_ITEMS: Final = 64  # that are watched: with all kinds some hundred inotify watches
RUN_NAME: Final = b"run.json"
_LOGS: Final = LOG.encode() + b"/"


class EndedRuns:
    """Ended runs; belongs to the worker's thread."""

    def __init__(self, ledger: Ledger, number: int, scanner: Scanner) -> None:
        """`number`: of the database in the ledger."""
        self._ledger, self._number, self._scanner = ledger, number, scanner
        self._last_ended: list[tuple[int, str]] = []  # (end, item), the last one last
        self._ended: set[str] = set()

    def see(self, folder: Folder, live: set[bytes]) -> None:
        """Note a run that has just ended, or has no sums yet; it is checked again when all of it is sent.

        Args:
            folder: that was scanned.
            live: log folders of the items that were live; one that is no more goes from it.
        """
        if folder.path != folder.item or folder.live or not folder.item.startswith(_LOGS):
            return
        item = item_name(folder.item)
        run, sums = self._run_in(folder)
        if run is not None:
            self._note_end(item, run.mtime_ns)
        just_ended = folder.item in live
        live.discard(folder.item)
        if run is not None and (sums not in folder.files or just_ended):
            self._ended.add(item)

    def _run_in(self, folder: Folder) -> tuple[Local | None, bytes]:
        """The status file of a log folder's run, with the name of the sums beside it."""
        if RUN_NAME in folder.files:
            return folder.files[RUN_NAME], SUMS_NAME
        run = self._scanner.run(item_name(folder.item))
        part = "" if run is None else run.part
        return folder.files.get(os.fsencode(run_file_name(part))), sums_name(part)

    def see_late_change(self, folder: Folder, name: bytes) -> None:
        """Have the sums of a run made again after a file has changed (a tag, a note)."""
        if folder.live or folder.kind == ARCHIVE_TESTER or name.startswith(SUMS_NAME):
            return
        item = item_name(folder.item)
        run = self._scanner.run(item)
        sums = sums_name("" if run is None else run.part)
        if os.path.lexists(os.path.join(self._scanner.root, _LOGS, os.fsencode(item), sums)):
            self._ended.add(item)

    def _note_end(self, item: str, ended_ns: int) -> None:
        if len(self._last_ended) < MAX_ITEMS or ended_ns > self._last_ended[0][0]:
            others = [known for known in self._last_ended if known[1] != item]
            self._last_ended = sorted([*others, (ended_ns, item)])[-MAX_ITEMS:]

    def last_ended(self) -> list[str]:
        """Folders of the items that ended last, absolute: worth watching."""
        root, kinds = os.fsdecode(self._scanner.root), self._scanner.scope.kinds
        wanted = [kind for kind in kinds if kind in FOLDER_KINDS]
        return [os.path.join(root, kind, item) for _, item in self._last_ended for kind in wanted]

    def write_sums(self, root: int, flying: Collection[SendJob], *, compact: bool) -> tuple[list[bytes], str]:
        """Write the sums of ended runs that are on the master, a few at a time.

        Args:
            root: descriptor of the data root.
            flying: what is being sent.
            compact: where each small file costs.

        Returns:
            Paths of files that were written; the failures, in words.
        """
        paths, problem = [], ""
        for item in list(self._ended)[:SETTLE_AT_ONCE]:
            if any(os.fsdecode(job.due.item).endswith(item) for job in flying):
                continue
            try:
                run = self._scanner.run(item)
                path = write_checksums(
                    self._ledger,
                    self._number,
                    self._scanner.root,
                    root,
                    item,
                    compact=compact,
                    part="" if run is None else run.part,
                )
            except (ChecksumsError, ScanError) as error:
                problem = printable(str(error))
                path = b""
            if path is not None:
                self._ended.discard(item)
                paths += [path] if path else []
        return paths, problem
