"""Looking into the spool: what a client handed over, without an agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rla_agent.model.frame_decoder import parse
from rla_agent.model.records import Event, ItemFile, Mark, OpeningFrame, RecordContent, Row, Text
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import TextTarget
from rla_client.contract.spool.segments import segment_numbers, segment_path, stream_names
from rla_client.stream.outbox import Outbox


def stop_autostart(places: Places) -> None:
    """As after `rla-agent stop`: clients start no agent."""
    places.create()
    places.stopped_marker.touch(mode=0o600)


def fill_spool(outbox: Outbox) -> Path:
    """Make the spool as full as its limit says, by one file, and have the outbox see it.

    Returns:
        The file, which takes no space on the disk.
    """
    folder = outbox.stream_folder
    assert folder is not None
    ballast = folder / "ballast"
    ballast.write_bytes(b"")
    os.truncate(ballast, AgentConfig().spool_max_bytes + 1)
    outbox._check_quota(count=True)
    return ballast


def contents(places: Places) -> list[RecordContent]:
    """All records of all streams, oldest stream first."""
    found: list[RecordContent] = []
    for name in stream_names(places.spool):
        folder: Path = places.spool / name
        for number in segment_numbers(folder):
            data = segment_path(folder, number).read_bytes()
            batch = parse(data, number, 0, final=True)
            assert batch.damaged == 0
            found += [record.content for record in batch.records]
    return found


def rows(places: Places) -> list[Row]:
    """All rows."""
    return [content for content in contents(places) if isinstance(content, Row)]


def values(places: Places) -> list[dict[str, Any]]:
    """The values of all rows."""
    return [dict(row.values) for row in rows(places)]


def text_of(places: Places, target: int = TextTarget.LOG) -> str:
    """Everything that goes to log.txt, warn.txt or backup.txt."""
    return "".join(c.text for c in contents(places) if isinstance(c, Text) and c.targets & target)


def openings(places: Places) -> list[dict[str, Any]]:
    """The opening frames."""
    return [content.fields for content in contents(places) if isinstance(content, OpeningFrame)]


def events(places: Places) -> list[bytes]:
    """Serialised TensorBoard events."""
    return [content.data for content in contents(places) if isinstance(content, Event)]


def files(places: Places) -> list[ItemFile]:
    """Whole small files."""
    return [content for content in contents(places) if isinstance(content, ItemFile)]


def marks(places: Places) -> dict[str, Any]:
    """What was told about the run, by name."""
    return {content.name: content.data for content in contents(places) if isinstance(content, Mark)}


def bare_opening(root: str | os.PathLike[str] = "/nowhere", **changes: Any) -> Opening:
    """Of a stream of this process in a plain folder; the folder need not be there."""
    told = {
        "run": "r", "epoch": 1, "opened": 1.5, "root": os.fspath(root), "root_device": 0, "root_inode": 0,
        "folders": {"log": "."}, "sinks": frozenset({"csv", "json", "log", "tensorboard"}), "names": {},
        "primary": True, "label": "", "pid": os.getpid(), "host": "h", "user": "u", "python": "p",
        "client": "0",
    }  # fmt: skip
    return Opening(**{**told, **changes})
