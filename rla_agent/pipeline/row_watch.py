"""Lifecycle of one stream's metric rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rla_agent.model.records import Batch


class RowRules(Protocol):
    """Metric rules that apply to one stream.

    Attributes:
        firings: of rules, since the last commit.
    """

    firings: Any

    def take(self, batch: Batch) -> None:
        """Evaluate the rows of a batch."""

    def state(self) -> object:
        """State for a restart, as plain data; it is stored with the stream's position."""

    def restore(self, state: object) -> None:
        """Continue from a stored state; an invalid one counts as none."""

    def firings_stored(self) -> None:
        """A commit holds the firings."""

    def take_over(self, former: RowRules) -> None:
        """Continue from the state of the former rules."""


class RowWatch:
    """The current rules of a stream, with the state that outlasts them."""

    def __init__(self) -> None:
        #: Rules that apply now; None: none do. `renew`, `end`.
        self.rules: RowRules | None = None
        #: Version of their rule set. `renew`.
        self.version = 0
        #: Durable state for rules that could not be read yet; None: there is none. `restore`, `renew`.
        self._stored: object = None

    @property
    def firings(self) -> Sequence[Any]:
        """Of rules, since the last commit."""
        firings: Sequence[Any] = () if self.rules is None else self.rules.firings
        return firings

    def take(self, batch: Batch) -> None:
        """Have the rules evaluate the rows of a batch."""
        if self.rules is not None:
            self.rules.take(batch)

    def renew(self, rules: RowRules | None, version: int, *, keep: bool) -> None:
        """Replace the rules; the new ones continue from the state of the former ones.

        Args:
            rules: None: none apply.
            version: of the rule set.
            keep: the stored state may be of rules that cannot be read now.
        """
        if rules is not None:
            rules.restore(self._stored)
            if self.rules is not None:
                rules.take_over(self.rules)
        self.rules, self.version = rules, version
        if not keep:
            self._stored = None

    def firings_stored(self) -> None:
        """A commit holds the firings."""
        if self.rules is not None:
            self.rules.firings_stored()

    def state(self) -> object:
        """State for a restart, as plain data; None: none."""
        return (self._stored or None) if self.rules is None else self.rules.state()

    def restore(self, state: object) -> None:
        """Keep a stored state for the rules that `renew` brings."""
        self._stored = state

    def end(self) -> None:
        """Stop watching."""
        self.rules = None
