"""Temp files of earlier attempts on the master."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.worker.batch import Confirmed
from rla_agent.replicate.worker.file_decision import ReplaceFile
from rla_agent.replicate.worker.send_job import SendJob

RESUME_BYTES: Final = 1 << 20  # a temp file with less is not worth continuing
MAX_REMOVED: Final = 1000  # temp names that one batch clears away
SETTLED_S: Final = 60.0  # until a server has carried out what a broken link had sent


class Leftovers:
    """Temp files of attempts on the master: large ones are continued, the others deleted.

    A server may still carry out requests that came before its link broke or the worker was killed, so the
    temp files of these are deleted once more `SETTLED_S` later.

    Belongs to the worker's thread. `orphans`: temp names to delete.
    """

    def __init__(self, ledger: Ledger, number: int) -> None:
        """`number`: of the database in the ledger."""
        self._ledger, self._number = ledger, number
        temps = sorted(ledger.temps(number), key=lambda temp: temp.acked)
        large = [temp for temp in temps if temp.acked >= RESUME_BYTES and ledger.waits(temp.key)]
        self._partial = {temp.key: temp for temp in large}
        kept = {temp.temp for temp in self._partial.values()}
        self.orphans = [temp.temp for temp in temps if temp.temp not in kept]
        self._unsettled = set(self.orphans)
        self._again: deque[tuple[float, bytes]] = deque()  # when it is due; a temp name that was deleted
        self._progress: dict[Key, int] = {}

    def take_orphans(self, now: float) -> tuple[bytes, ...]:
        """Some of the orphans, for a batch."""
        while self._again and self._again[0][0] <= now:
            self.orphans.append(self._again.popleft()[1])
        taken, self.orphans = self.orphans[:MAX_REMOVED], self.orphans[MAX_REMOVED:]
        return tuple(taken)

    def cleared(self, temps: Sequence[bytes], now: float) -> list[bytes]:
        """Drop deleted temp files that cannot come back."""
        unsettled = self._unsettled.intersection(temps)
        self._unsettled -= unsettled
        self._again += [(now + SETTLED_S, temp) for temp in unsettled]
        return [temp for temp in temps if temp not in unsettled]

    def resumed(self, job: SendJob) -> SendJob:
        """The job, continued from an earlier attempt's temp file where that has the same version."""
        partial = self._partial.pop(job.due.key, None)
        if partial is None:
            return job
        if isinstance(job.action, ReplaceFile) and partial.local == job.local and not job.action.cut:
            return replace(job, temp=partial.temp, start=partial.acked, sure=partial.synced)
        self.orphans.append(partial.temp)
        return job

    def confirmed(self, note: Confirmed) -> None:
        """Store the progress of a job's file."""
        self._ledger.temp_progress(self._number, note.job.temp, note.confirmed, note.synced)
        self._progress[note.job.due.key] = note.confirmed

    def keep(self, job: SendJob) -> None:
        """Keep the temp file of a job whose link broke, where enough has arrived to continue it."""
        confirmed = self._progress.pop(job.due.key, job.start)
        for temp in self._ledger.temps(self._number) if confirmed >= RESUME_BYTES else ():
            if temp.temp == job.temp:
                self._partial[job.due.key] = temp
                return
        if job.uses_temp:
            self.orphans.append(job.temp)
            self._unsettled.add(job.temp)

    def give_up(self, key: Key) -> None:
        """Discard an earlier attempt's temp file."""
        partial = self._partial.pop(key, None)
        if partial is not None:
            self.orphans.append(partial.temp)

    def sent(self, key: Key) -> None:
        """Forget the temp file of a file that has arrived."""
        self._progress.pop(key, None)
        self.give_up(key)
