"""What a volume tells alerts and replication: both lie above it, and both may be missing (a drain)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rla_agent.pipeline.stream import Stream
from rla_agent.store.state import Changes
from rla_client.contract.opening import Opening


class RunObserver(Protocol):
    """Metric rules: they see each stream that opens, and their firings go into its commits."""

    def run_opened(self, stream: Stream) -> None:
        """A stream is taken in: its rules hold from here on."""

    def add_changes(self, streams: Iterable[Stream], changes: Changes) -> list[Stream]:
        """Put firings into a commit; returns the streams to clear once it has succeeded."""


class ItemObserver(Protocol):
    """Replication: it hears when an item begins, changes and ends."""

    def run_opened(self, opening: Opening) -> None:
        """A stream of an item is taken in."""

    def committed(self, streams: Iterable[Stream]) -> None:
        """Files of these streams' items have changed, and are on disk."""

    def run_ended(self, opening: Opening) -> None:
        """A stream was taken in to its end."""
