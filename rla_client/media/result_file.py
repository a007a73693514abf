"""Result files that need no rendering."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from rla_client.contract.layout import OTHER_RESULTS
from rla_client.media import job_sender
from rla_client.media.recording_place import find_place

MAX_FRAME_FILE = 1 << 20  # bytes of a file that is sent through the spool


def keep_bytes(name: str, content: bytes, where: Mapping[str, Any]) -> None:
    """Keep a file with this content.

    Args:
        name: below the results folder, with extension.
        content: of the file.
        where: other arguments of `find_place`.

    Raises:
        ArgumentError: the name is invalid.
        NotConfiguredError: no run is open and no folder is given.
    """
    place = find_place(name, frozenset({_ending(name)}), **where)
    if place.stays:
        return
    if place.outbox is not None and len(content) <= MAX_FRAME_FILE:
        place.outbox.file(OTHER_RESULTS, place.name, content)
    else:
        job_sender.make_here(place, "file", lambda file: file.write(content))


def keep_copy(name: str, source: str, where: Mapping[str, Any]) -> str:
    """Keep a copy of a file, with its extension; returns the path of the copy.

    Args:
        name: below the results folder, without extension.
        source: path of the file.
        where: other arguments of `find_place`.

    Raises:
        ArgumentError: the name is invalid.
        NotConfiguredError: no run is open and no folder is given.
        OSError: the source cannot be read.
    """
    whole = f"{name}{os.path.splitext(source)[1]}"
    with open(source, "rb") as original:
        place = find_place(whole, frozenset({_ending(whole)}), **where)
        if not place.stays:
            job_sender.make_here(place, "file", lambda file: shutil.copyfileobj(original, file))
    return str(place.path)


def _ending(name: str) -> str:
    return os.path.splitext(name)[1][1:].lower()
