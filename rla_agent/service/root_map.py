"""Map of data roots to their places on this machine.

A copied spool does not have the present path of its data roots, so the roots can be mapped (`OLD=NEW`), and
the device and inode in the opening frames are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rla_client.contract.errors import ArgumentError
from rla_client.contract.spool.opening import Opening


@dataclass(frozen=True, slots=True)
class RootMap:
    """Present data roots: old absolute path → new one; the longest match counts."""

    roots: Mapping[str, str] = field(default_factory=dict)
    check: bool = True

    def place(self, root: str) -> str:
        """The folder that stands for `root` here."""
        old = max(self.fitting(root), key=len, default="")
        if not old:
            return root
        return os.path.normpath(self.roots[old] + "/" + root[len(old) :])

    def fitting(self, root: str) -> list[str]:
        """The old paths that `root` is, or is below of."""
        return [old for old in self.roots if root == old or root.startswith(old.rstrip("/") + "/")]

    def adjust(self, opening: Opening) -> Opening:
        """The opening for this machine; device and inode are those of the present folder.

        The interpreter of another machine's spool is removed, since its path would be a file of this machine.
        """
        root = self.place(opening.root)
        if not self.check:
            opening = opening._replace(python="")
        if self.check and root == opening.root:
            return opening
        try:
            found = os.stat(root)
        except OSError:
            return opening._replace(root=root)
        return opening._replace(root=root, root_device=found.st_dev, root_inode=found.st_ino)


def parse_roots(mappings: Sequence[str]) -> RootMap:
    """Read `OLD=NEW` texts.

    Raises:
        ArgumentError: not of that form, OLD not absolute, or NEW not a folder.
    """
    roots: dict[str, str] = {}
    for mapping in mappings:
        old, sign, new = mapping.partition("=")
        if not sign or not os.path.isabs(old) or not os.path.isdir(new):
            raise ArgumentError(
                f"--data-root {mapping}: must be OLD=NEW, an absolute path and a folder that is here"
            )
        roots[os.path.normpath(old)] = os.path.realpath(new)
    return RootMap(roots)
