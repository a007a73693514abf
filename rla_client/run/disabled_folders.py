"""Folders of a run that stores nothing: RLA_MODE=disabled, ranks above 0.

Scripts put files of their own below `exp_manager.log_dir` and its siblings. Where there is no item,
these are folders of a private temporary one: made when somebody first asks for one, removed when the
process ends (a killed one leaves it to the system's sweep of temporary files).
"""

from __future__ import annotations

import atexit
import os

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import CHECKPOINT, LOG
from rla_client.run.disabled_checkpoints import NowhereCheckpoints
from rla_client.run.item import Item, create_item

PREFIX = "rla-nowhere-"


class Nowhere:
    """The temporary item of one run.

    Args:
        table: of the run.
        info: of its index.
        address: of its index.
        why: what stores nothing, for messages.
    """

    def __init__(self, table: str, info: str, address: str, why: str = "this mode") -> None:
        self._names = table, info, address
        self._made: tuple[int, Item] | None = None
        self.checkpoints = NowhereCheckpoints(lambda: self.item().folder(CHECKPOINT), why)

    def item(self) -> Item:
        """The item, its folders made; a forked process gets one of its own.

        Raises:
            ArgumentError: the folder for temporary files cannot be written.
        """
        pid = os.getpid()
        if self._made is None or self._made[0] != pid:
            import tempfile  # noqa: PLC0415 - not at import of the package

            try:
                root = tempfile.mkdtemp(prefix=PREFIX)
            except OSError as error:
                message = f"no temporary folder for a run that stores nothing: {error}; set TMPDIR to one"
                raise ArgumentError(message) from error
            atexit.register(_remove, root, pid)
            self._made = pid, create_item(root, *self._names)
        return self._made[1]

    def log_dir(self) -> str:
        """The item's folder for logs."""
        return self.item().folder(LOG)


def _remove(root: str, pid: int) -> None:
    if os.getpid() == pid:
        import shutil  # noqa: PLC0415 - not at import of the package

        shutil.rmtree(root, ignore_errors=True)
