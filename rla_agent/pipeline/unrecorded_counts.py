"""Content of a stream that its run's record does not have yet."""

from __future__ import annotations

from collections.abc import Iterable

from rla_agent.model.records import Row
from rla_client.contract.spool.losses import Loss


class Intake:
    """What a stream took in since its run's record was brought up to date; see `Stream.drain_new`.

    The stream adds to it; whoever drains it has it for itself.
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
        """So many more rows came, `last` the last of them."""
        self.rows += count
        self.last = last

    def add_damage(self, count: int) -> None:
        """So many bytes of the spool held no record."""
        self.damaged_bytes += count

    def add_losses(self, rows: int, others: int, losses: Iterable[Loss]) -> None:
        """So many more rows and other things are lost."""
        self.lost_rows += rows
        self.lost_others += others
        self.losses += losses

    def ask_replication(self) -> None:
        """The writer wants what came before this on the master soon."""
        self.replicate_now = True
