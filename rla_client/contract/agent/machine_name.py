"""The name of this machine among those of one run.

Clones of one image have the same host name. So six digits follow it, a hash of a random value, drawn at first
use and stored in the state folder, and of the addresses of the network cards, since a clone may have a copy
of that folder.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_client.contract.errors import PlaceError

if TYPE_CHECKING:
    from rla_client.contract.agent.places import Places

DRAWN_NAME: Final = "machine"  # in the state folder
MAX_HOST_CHARS: Final = 20  # the name is part of file names and of metrics' names
_OTHERS: Final = re.compile(r"[^A-Za-z0-9-]+")


def machine_name(places: Places) -> str:
    """Host name and six digits; letters, digits and hyphens only."""
    import hashlib  # noqa: PLC0415 - not at import of the package

    if not places.state.is_dir():
        with suppress(PlaceError):
            places.create()
    host = _OTHERS.sub("-", os.uname().nodename.partition(".")[0])[:MAX_HOST_CHARS].strip("-") or "host"
    told = _drawn(places.state / DRAWN_NAME) + b"\n" + "\n".join(_cards()).encode()
    return f"{host}-{hashlib.sha256(told).hexdigest()[:6]}"


def _drawn(path: Path) -> bytes:
    """The random value of this state folder; concurrent processes get the same."""
    with suppress(OSError):
        return path.read_bytes()
    temp = path.with_name(f".rla-tmp-{DRAWN_NAME}-{os.urandom(8).hex()}")
    try:
        temp.write_bytes(os.urandom(16).hex().encode())
        with suppress(FileExistsError):  # another process was first
            os.link(temp, path)
        temp.unlink()
        return path.read_bytes()
    except OSError:  # no state folder (yet), or one without hard links
        return os.fsencode(path)


def _cards() -> list[str]:
    """Addresses of physical network cards; none in most containers."""
    found = []
    for card in sorted(Path("/sys/class/net").glob("*/device")):
        with suppress(OSError):
            found.append((card.parent / "address").read_text().strip())
    return found
