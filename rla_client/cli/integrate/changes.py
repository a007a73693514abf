"""Record of the changes to a script."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ScriptChanges:
    """What was found in a script.

    Attributes:
        libraries: whose lines become ours.
        by_hand: what is left to the user, with its line.
    """

    libraries: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)
