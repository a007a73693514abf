"""Watch over one stream's rows by metric rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rla_agent.model.records import Batch


class RowRules(Protocol):
    """Metric rules that hold for one stream.

    Attributes:
        firings: of rules, since the last commit.
    """

    firings: Any

    def take(self, batch: Batch) -> None:
        """Look at the rows of a batch."""

    def state(self) -> object:
        """What a restart must know, as plain data; it is stored with the stream's position."""

    def restore(self, state: object) -> None:
        """Go on from a stored state; one that makes no sense counts as none."""

    def firings_stored(self) -> None:
        """A commit holds the firings."""

    def take_over(self, former: RowRules) -> None:
        """Go on where the rules before these stand."""


class RowWatch:
    """The rules that hold for a stream now, and what outlasts them."""

    def __init__(self) -> None:
        #: Rules that hold now; None: none do. `renew`, `end`.
        self.rules: RowRules | None = None
        #: Version of the rule set that they are of. `renew`.
        self.version = 0
        #: Durable state for rules that could not be read yet; None: there is none. `restore`, `renew`.
        self._stored: object = None

    @property
    def firings(self) -> Sequence[Any]:
        """Of rules, since the last commit."""
        firings: Sequence[Any] = () if self.rules is None else self.rules.firings
        return firings

    def take(self, batch: Batch) -> None:
        """Have the rules look at the rows of a batch."""
        if self.rules is not None:
            self.rules.take(batch)

    def renew(self, rules: RowRules | None, version: int, *, keep: bool) -> None:
        """Other rules hold from here on; they go on where the former ones stand.

        Args:
            rules: None: none hold.
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
        """What a restart must know, as plain data; None: nothing."""
        return (self._stored or None) if self.rules is None else self.rules.state()

    def restore(self, state: object) -> None:
        """Keep a stored state for the rules that `renew` brings."""
        self._stored = state

    def end(self) -> None:
        """Nothing is watched any more."""
        self.rules = None
