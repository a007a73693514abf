"""Artifacts, which are named groups of files of a run."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from rla_client.contract.filesystem.atomic_write import replacing, write_atomic
from rla_client.contract.layout import CHECKPOINT, OTHER_RESULTS
from rla_client.integrations.wandb.unknown_names import Lenient, tell_unknown
from rla_client.integrations.wandb.values import Table
from rla_client.manager import exp_manager
from rla_client.media.row_media import safe_name
from rla_client.stream.param_values import plain_hyper_param


class _Value:
    """An object with the arguments of wandb's class as attributes; further arguments are ignored."""

    takes: ClassVar[dict[str, Any]] = {}  # argument → default; `...`: it is required
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, *args: Any, **named: Any) -> None:
        given = {**dict(zip(self.takes, args, strict=False)), **named}
        for name, default in self.takes.items():
            value = default if given.get(name) is None else given[name]
            if value is ...:
                raise TypeError(f"{type(self).__name__} needs {name}")
            setattr(self, name, value)


class Artifact(_Value, Lenient):
    """Files under a name, which `log_artifact` copies to the run; models are copied to its checkpoints."""

    metadata: Any
    takes: ClassVar = {"name": ..., "type": ..., "description": None, "metadata": None}

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.metadata = dict(self.metadata or {})
        self.version, self.aliases = "v0", ["latest"]
        self.entries: dict[str, Path | bytes] = {}
        self._folder: Path | None = None

    def add_file(self, local_path: str | os.PathLike[str], name: str | None = None, **_: Any) -> None:
        """Add a file.

        Raises:
            ValueError: the file does not exist.
        """
        path = Path(local_path)
        if not path.is_file():
            raise ValueError(f"path is not a file: {path}")
        self.entries[name or path.name] = path.absolute()

    def add_dir(self, local_path: str | os.PathLike[str], name: str | None = None, **_: Any) -> None:
        """Add all files below a folder.

        Raises:
            ValueError: the folder does not exist.
        """
        if not Path(local_path).is_dir():
            raise ValueError(f"path is not a directory: {local_path}")
        for path in sorted(Path(local_path).rglob("*")):
            if path.is_file():
                self.add_file(path, PurePath(name or "", path.relative_to(local_path)).as_posix())

    def add(self, obj: Any, name: str, **_: Any) -> None:
        """Add a table, as CSV; other objects are left out."""
        if isinstance(obj, Table):
            self.entries[f"{name}.csv"] = obj.csv()
        else:
            tell_unknown(f"Artifact.add of {type(obj).__name__}")

    @contextmanager
    def new_file(self, name: str, mode: str = "w", **_: Any) -> Iterator[Any]:
        """A context that adds what is written to a file object."""
        file: Any = io.BytesIO() if "b" in mode else io.StringIO()
        yield file
        content = file.getvalue()
        self.entries[name] = content if isinstance(content, bytes) else content.encode()

    def wait(self, *_: Any, **__: Any) -> Artifact:
        """Return at once, as files are copied synchronously."""
        return self

    def download(self, root: str | None = None, **_: Any) -> str:
        """The folder with the files, copied to `root` if that is given.

        Raises:
            ValueError: the artifact was not logged.
        """
        if self._folder is None:
            raise ValueError(f"artifact {self.name} was not logged")
        if root is not None:
            shutil.copytree(self._folder, root, dirs_exist_ok=True)
        return str(root or self._folder)

    def store(self, run: str) -> None:
        """Copy the files into the open run, to the folder of the next version.

        Args:
            run: id of the run, for the artifact's description.

        Raises:
            OSError: a file cannot be copied; the folder is removed.
        """
        kind = CHECKPOINT if self.type in {"model", "checkpoint"} else OTHER_RESULTS
        parent = Path(exp_manager.folder_of(kind)) / "artifacts" / safe_name(self.name)
        self.version = f"v{len(list(parent.glob('v*')))}"
        folder = parent / self.version
        about = {name: plain_hyper_param(getattr(self, name)) for name in self.takes}
        about |= {"run": run, "aliases": self.aliases, "files": sorted(self.entries)}
        try:
            for name, entry in self.entries.items():
                put(folder / safe_name(name), entry)
            put(folder / "artifact.json", json.dumps(about, indent=1, default=str).encode())
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._folder = folder


def put(target: Path, content: Path | bytes) -> None:
    """Write or copy a file atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        write_atomic(target, content, durable=False)
        return
    with replacing(target, durable=False) as partial:
        shutil.copy2(content, partial)
