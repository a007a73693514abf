"""Record of the changes to a script."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ScriptChanges:
    """Changes to a script.

    Attributes:
        libraries: libraries or kinds of lines that are replaced.
        by_hand: changes that the user must make, each with its line.
    """

    libraries: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)
