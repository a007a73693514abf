"""Folders of an experiment.

An item has its snapshots in checkpoint/, the code archive in code/, the rest in log/. A plain folder is
claimed by `mkdir`, which succeeds for exactly one of several processes that start at the same time; the
others take `_1`, `_2`, ….
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_client.code.walk import DATABASE_FOLDERS
from rla_client.config.project import LAUNCHER_FOLDER
from rla_client.contract.errors import ArgumentError
from rla_client.contract.run_index import MAX_INDEX_NAME_BYTES
from rla_client.contract.safe_names import component_problem
from rla_client.stream.param_values import name_of

RERUN_FOLDER = ("local", "rerun")  # in a database's folder


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders of one run: three folders of an item, or one plain folder for all.

    Attributes:
        log: rows, text, parameters.
        code: the code archive.
        snapshots: the snapshots.
        data_root: the database, None for a plain folder.
    """

    log: Path
    code: Path
    snapshots: Path
    data_root: Path | None = None

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders that hold data and no code."""
        if self.data_root is None:
            return (self.log,)
        return (*(self.data_root / kind for kind in DATABASE_FOLDERS), self.data_root.joinpath(*RERUN_FOLDER))


def experiment_name(name: str, parameters: Mapping[str, object]) -> str:
    """`name_k=v_k=v` as one folder name without addresses; slashes become `_`, a long name ends in a hash."""
    whole = "_".join([name, *(f"{key}={name_of(value, format)}" for key, value in parameters.items())])
    flat = "".join("_" if char == "/" or not char.isprintable() else char for char in whole)
    raw = flat.encode("utf-8", "backslashreplace")
    if len(raw) > MAX_INDEX_NAME_BYTES:
        tail = "~" + hashlib.sha256(raw).hexdigest()[:12]
        return raw[: MAX_INDEX_NAME_BYTES - len(tail)].decode("utf-8", "ignore") + tail
    return raw.decode()


def default_log_dir(prefix: str, name: str) -> Path:
    """`<cwd>/data/local/<prefix>/<name>`.

    Raises:
        ArgumentError: a part of prefix or name cannot be a folder.
    """
    parts = [*prefix.split("/"), *name.split("/")]
    for part in parts:
        problem = component_problem(part)
        if problem:
            raise ArgumentError(f"the experiment's folder {prefix}/{name} cannot be made: {problem}")
    return Path.cwd().joinpath(*LAUNCHER_FOLDER, *parts)


def claim_folder(wanted: str | os.PathLike[str], *, existing: bool) -> Path:
    """Make `wanted`, or `wanted_1`, `wanted_2`, … if it exists; with `existing`, reuse the folder.

    Raises:
        ArgumentError: the folder cannot be made.
    """
    first = Path(wanted).absolute()
    try:
        if existing:
            first.mkdir(parents=True, exist_ok=True)
            return first
        first.parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count():
            folder = first.with_name(f"{first.name}_{number}") if number else first
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
    except OSError as error:
        message = f"cannot make the experiment's folder {first}: {error.strerror or error}"
        raise ArgumentError(message) from error
    raise AssertionError  # count never ends
