"""Queue of a stream's pending item files."""

from __future__ import annotations

from collections.abc import Iterator

from rla_agent.model.records import ItemFile


class FileQueue:
    """Files that came with a stream and are not in the item yet, oldest first.

    While there is one, the stream's position is not stored.
    """

    def __init__(self) -> None:
        #: In the order of the stream. `add`, `drop_superseded`, `end_first`, `clear`.
        self._files: list[ItemFile] = []
        #: When the first one was first refused for want of rights; monotonic seconds, None: it was not.
        #: `refused_for`, `end_first`.
        self._refused_since: float | None = None

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[ItemFile]:
        return iter(self._files)

    @property
    def first(self) -> ItemFile:
        """The file that is to be written next."""
        return self._files[0]

    def add(self, file: ItemFile) -> None:
        """Append a file."""
        self._files.append(file)

    def drop_superseded(self) -> None:
        """Drop all but the last content of each file."""
        newest = {(file.kind, file.path): file for file in self._files}
        self._files = [file for file in self._files if newest[file.kind, file.path] is file]

    def end_first(self) -> None:
        """Remove the first file, which was written or never will be."""
        del self._files[0]
        self._refused_since = None

    def refused_for(self, now: float) -> float:
        """Note that the first file is refused; for how many seconds it has been.

        Args:
            now: monotonic.
        """
        if self._refused_since is None:
            self._refused_since = now
        return now - self._refused_since

    def clear(self) -> None:
        """Discard all files."""
        self._files = []
