"""What the agent knows of a stream: its opening frame, checked.

Nothing of a client becomes a path unchecked: folder and file names must be safe relative paths,
and every file is opened component by component from the data root without following links.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_agent.model.continuation import Continuation, check_continuation
from rla_agent.model.validate import MAX_TIME_S, moment, whole
from rla_client.contract.errors import ArgumentError, RemoteProtocolError
from rla_client.contract.files import open_folder, walk
from rla_client.contract.layout import ALWAYS_OUTPUTS, OUTPUT_NAMES, TAKEN_NAMES, check_relative

SINKS = ("csv", "json", "log", "tensorboard")
MAX_PID = 1 << 31
MAX_NAME_BYTES = 255


class ItemGoneError(Exception):
    """The folder of an item is not there any more."""


@dataclass(frozen=True, slots=True)
class StreamOpening:
    """Checked content of an OPEN frame."""

    run: str
    epoch: int
    opened: float
    root: str
    root_device: int
    root_inode: int
    folders: dict[str, str]
    sinks: frozenset[str]
    names: dict[str, str]
    table: str
    index: str
    primary: bool
    label: str
    pid: int
    host: str
    user: str
    python: str
    client: str
    config: str | None
    offline: bool
    rows: int
    lost: int
    continues: Continuation | None
    raw: dict[str, Any]

    @property
    def log_folder(self) -> str:
        """Absolute path of the folder of the run's rows and text."""
        return os.path.normpath(os.path.join(self.root, self.folders["log"]))

    def setting(self, key: str, machine: float) -> float:
        """A number of seconds that the run's project sets for itself, else the machine's."""
        told = self.raw.get(key)
        return float(told) if isinstance(told, int | float) and 0 <= told < MAX_TIME_S else machine

    @property
    def title(self) -> str:
        """How the run is called in messages."""
        return f"{self.table}/{self.index}" if self.table else self.root


def check_opening(fields: dict[str, Any]) -> StreamOpening:
    """Check an opening frame.

    Raises:
        RemoteProtocolError: something is missing, of the wrong type, or an unsafe name.
    """
    try:
        folders = {str(kind): _folder(path) for kind, path in fields["folders"].items()}
        names = {str(output): _name(name) for output, name in fields["names"].items()}
        label = str(fields["label"])
        if label:
            _name(label)
        sinks = frozenset(name for name in fields["sinks"] if name in SINKS)
        _check_places({*sinks, *ALWAYS_OUTPUTS}, names, label)
        root = str(fields["root"])
        if not os.path.isabs(root) or "\0" in root or "log" not in folders:
            message = f"data root {root!r} is not an absolute path, or there is no log folder"
            raise RemoteProtocolError(message)
        config = fields.get("config")
        if "\0" in str(config):  # no file is called so
            config = None
        return StreamOpening(
            run=_name(fields["run"]),
            epoch=whole(fields["epoch"]),
            opened=moment(fields["opened"]),
            root=root,
            root_device=whole(fields["root_device"]),
            root_inode=whole(fields["root_inode"]),
            folders=folders,
            sinks=sinks,
            names=names,
            table=str(fields.get("table", "")),
            index=str(fields.get("index", "")),
            primary=bool(fields["primary"]),
            label=label,
            pid=whole(fields["pid"], MAX_PID),
            host=str(fields["host"]),
            user=str(fields["user"]),
            python=str(fields["python"]),
            client=str(fields["client"]),
            config=None if config is None else str(config),
            offline=bool(fields.get("offline", False)),
            rows=whole(fields["rows"]),
            lost=whole(fields["lost"]),
            continues=check_continuation(fields.get("continues")),
            raw=fields,
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, ArgumentError) as error:
        message = f"opening frame is not what a client writes: {error!r}"
        raise RemoteProtocolError(message) from error


def _folder(path: object) -> str:
    text = str(path)
    if text != ".":
        check_relative(text, what="folder")
    return text


def _name(name: object) -> str:
    text = str(name)
    if len(check_relative(text)) != 1:
        message = f"{text!r} is more than one path component"
        raise ArgumentError(message)
    return text


def _check_places(outputs: set[str], names: dict[str, str], label: str) -> None:
    """Refuse outputs for which there is no place: one would be tried for ever, or two write one file.

    Only those that the stream has: the names of the others are used by nobody.
    """
    placed = [
        _labelled(names.get(name, default), label)
        for name, default in OUTPUT_NAMES.items()
        if name in outputs
    ]
    long = [name for name in placed if len(os.fsencode(name)) > MAX_NAME_BYTES]
    if long or len({*placed, *TAKEN_NAMES}) < len(placed) + len(TAKEN_NAMES):
        message = f"no place for the outputs {placed!r:.400}"
        raise ArgumentError(message)


def output_path(opening: StreamOpening, name: str) -> str:
    """Path of an output below the log folder, with the label of a worker stream."""
    return _labelled(opening.names.get(name, OUTPUT_NAMES[name]), opening.label)


def _labelled(name: str, label: str) -> str:
    if not label:
        return name
    stem, ending = os.path.splitext(name)
    return f"{stem}.{label}{ending}"


def open_below(root: str, item: str, folder: str, *, create: bool = False) -> int:
    """Descriptor of a folder of an item; what is missing may be made only below the item's own.

    Args:
        root: absolute.
        item: the item's folder, relative to `root`; empty: the same as `folder`.
        folder: that or one below it, relative to `root`.
        create: make the components that are missing.

    Raises:
        ItemGoneError: the item's folder is not there.
        OSError: anything else.
    """
    try:
        descriptor = open_folder(root, item or folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ItemGoneError(os.path.join(root, item or folder)) from error
    if folder == (item or folder):
        return descriptor
    try:  # from the open folder: nothing can be made in one that is deleted right now
        return walk(descriptor, os.path.relpath(folder, item).split("/"), create=create)
    finally:
        os.close(descriptor)


def same_root(opening: StreamOpening) -> bool:
    """Whether the data root that this agent sees is the one that the client meant.

    Device numbers are given anew at each boot: for a stream of before, the inode and the item's folder
    must do.
    """
    try:
        found = os.stat(opening.root)
    except OSError:
        return False
    if found.st_ino != opening.root_inode:
        return False
    if found.st_dev == opening.root_device:
        return True
    return opening.opened < boot_time() and os.path.isdir(opening.log_folder)


def item_is_there(opening: StreamOpening) -> bool:
    """Whether the data root is the one that is meant, and the item's log folder is in it."""
    try:
        os.close(open_folder(opening.root, opening.folders["log"]))
    except OSError:
        return False
    return same_root(opening)


def root_is_away(opening: StreamOpening) -> bool:
    """Whether an item is missed because all of its data root is not there, or another one.

    One whose folder is found is not away: a file system that was mounted anew may have another device number.
    """
    try:
        os.close(open_folder(opening.root, opening.folders["log"]))
    except OSError:
        return not same_root(opening)
    return False


def boot_time() -> float:
    """When this machine booted, Unix seconds; 0 when that cannot be found out."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return next((float(line.split()[1]) for line in file if line.startswith("btime ")), 0.0)
    except OSError:
        return 0.0


def fsync_up(root: str, relative: str) -> None:
    """Make the chain of folders from `relative` up to `root` durable."""
    path = Path(relative)
    while True:
        descriptor = open_folder(root, str(path))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if str(path) == ".":
            return
        path = path.parent


def why_late(opening: StreamOpening, error: OSError) -> str:
    """Say why a stream is not taken in yet, and of which run it is."""
    reason = error.strerror or str(error)
    file = f" ({error.filename})" if error.filename else ""
    return (
        f"not taken in yet, tried again all the time: the run in {opening.log_folder} cannot be written: "
        f"{reason}{file}; its rows wait in the spool"
    )


def why_parked(root: str) -> str:
    """Say why streams of a data root wait; an item is given up only where its root is there."""
    if os.path.exists(root):
        return (
            f"the data root {root} is another folder here than for the training process (a container?); "
            "run an agent where it runs"
        )
    return f"the data root {root} is not here (not mounted, or hidden from the service)"
