"""Safe checkpoint reader for torch.distributed.checkpoint.

It runs no code from the files. Its import needs torch, since its classes are torch's.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader
from torch.distributed.checkpoint._nested_dict import set_element
from torch.distributed.checkpoint.metadata import Metadata

from rla_client.checkpoint.dcp_metadata import MAX_METADATA_BYTES, read_metadata
from rla_client.checkpoint.loading import load_file
from rla_client.contract.errors import NoCheckpointError, RlaError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.sharded_checkpoint.files import METADATA
from rla_client.contract.sharded_checkpoint.folder import read_whole
from rla_client.contract.sharded_checkpoint.records import Whole

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import ReadItem


class WholeReader(FileSystemReader):  # type: ignore[misc]  # torch's are not checked
    """Reads the folder of a whole checkpoint.

    Args:
        path: `<name>_<step>.dcp`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._folder = path
        self._failure: Exception | None = None

    def read_whole(self) -> Whole:
        """The checkpoint's `whole.json`.

        Raises:
            NoCheckpointError: it is not complete.
        """
        whole = read_whole(self._folder)
        if whole is None:
            raise NoCheckpointError(f"{self._folder} is no whole checkpoint: it has no .rla/whole.json")
        return whole

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:  # noqa: ANN401 - as torch has it
        """Read `.metadata` safely.

        Errors are raised by `set_up_storage_reader`, which torch calls next and whose errors it passes on to
        all ranks; those of this method it would only log.
        """
        try:
            sizes = {entry.file: entry.size for entry in self.read_whole().files}
            data = read_small(self._folder / METADATA, MAX_METADATA_BYTES)
            found: Metadata = read_metadata(data, sizes)
        except (RlaError, OSError) as error:
            self._failure = error
            return Metadata({}, {}, {})
        return found

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,
        *args: Any,  # noqa: ANN401 - as torch has it
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Take the result of `read_metadata`.

        Raises:
            NoCheckpointError: the checkpoint is not whole.
            UntrustedCheckpointError: it names something else, or leads elsewhere.
            OSError: it cannot be read.
        """
        if self._failure is not None:
            raise self._failure
        super().set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)


class CheckedPlanner(DefaultLoadPlanner):  # type: ignore[misc]
    """Loads pickled objects by `weights_only`, unless they are trusted."""

    def __init__(self, *, trust: bool) -> None:
        super().__init__()
        self._trust = trust

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put an object into the state.

        Raises:
            UntrustedCheckpointError: it needs code from the file.
        """
        content = load_file(value, trust=self._trust)
        key = read_item.dest_index.fqn
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[key], content)
        else:
            self.state_dict[key] = content


def load_into(
    into: dict[str, Any],
    path: Path,
    group: torch.distributed.ProcessGroup | None,
    *,
    trust: bool,
) -> None:
    """Load a whole checkpoint in place; all ranks of the group call it.

    Raises:
        NoCheckpointError: it is not whole.
        UntrustedCheckpointError: it holds objects, and `trust` is False.
        ValueError, RuntimeError: a key or a shape of `into` is not in it.
    """
    import warnings  # noqa: PLC0415 - not at import of the package

    from torch.distributed.checkpoint import load  # noqa: PLC0415

    reader, planner = WholeReader(path), CheckedPlanner(trust=trust)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        load(into, storage_reader=reader, planner=planner, process_group=group, no_dist=group is None)
