"""What the pipeline calls of those above it, so that it need not know alerts or replication."""

from __future__ import annotations

from typing import Any, Protocol

from rla_agent.model.ingest import Batch


class RowWatch(Protocol):
    """Metric rules over one stream's rows.

    Attributes:
        firings: of rules, since the last commit.
    """

    firings: Any

    def take(self, batch: Batch) -> None:
        """Look at the rows of a batch."""

    def state(self) -> Any:  # noqa: ANN401 - plain data
        """What a restart must know, as plain data; it is stored with the stream's position."""

    def restore(self, state: object) -> None:
        """Go on from a stored state; one that makes no sense counts as none."""
