"""View of the open run for its savers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rla_client.run.configure import RunSetup
    from rla_client.run.item import ItemFolders
    from rla_client.run.run import Run
    from rla_client.run.state.custom_values import CustomValues
    from rla_client.run.temporary_item import TemporaryItem
    from rla_client.stream.clock import TimeStepHolder


class SavedRun(Protocol):
    """The interface of `RunData` for savers of checkpoints and of the archive."""

    setup: RunSetup
    item: ItemFolders | None
    run: Run | None
    disabled: TemporaryItem | None
    custom: CustomValues

    @property
    def clock(self) -> TimeStepHolder:
        """The run's."""

    def folder_of(self, kind: str) -> str:
        """See `ExpManager.folder_of`."""
