"""Counts of a stream that its run's record does not have yet."""

from __future__ import annotations

from collections.abc import Iterable

from rla_agent.model.records import Row
from rla_client.contract.spool.losses import Loss


class Intake:
    """Counts of a stream since its run's record was last updated; see `Stream.drain_new`.

    The stream adds to it; draining hands it over.
    """

    def __init__(self) -> None:
        #: Rows. `add_rows`.
        self.rows = 0
        #: The last of them; None while there is none. `add_rows`.
        self.last: Row | None = None
        #: Bytes of the spool that held no record. `add_damage`.
        self.damaged_bytes = 0
        #: Rows that are lost, as the writer says. `add_losses`.
        self.lost_rows = 0
        #: Other things that are lost: what the writer says, and small files that the agent gave up.
        #: `add_losses`.
        self.lost_others = 0
        #: Examples of both, with the reasons. `add_losses`.
        self.losses: list[Loss] = []
        #: The writer asked for replication at once. `ask_replication`.
        self.replicate_now = False

    def add_rows(self, count: int, last: Row) -> None:
        """Count rows; `last` is the last of them."""
        self.rows += count
        self.last = last

    def add_damage(self, count: int) -> None:
        """Count bytes of the spool that held no record."""
        self.damaged_bytes += count

    def add_losses(self, rows: int, others: int, losses: Iterable[Loss]) -> None:
        """Count lost rows and other losses."""
        self.lost_rows += rows
        self.lost_others += others
        self.losses += losses

    def ask_replication(self) -> None:
        """Note that the writer asks for replication of everything so far."""
        self.replicate_now = True
