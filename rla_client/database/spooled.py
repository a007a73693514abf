"""Which folder a stream of this machine's spool writes into: its opening frame says so."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rla_client.contract.segments import stream_opening


def log_folder(stream: Path) -> str | None:
    """Log folder of the run of a stream, without links; None where that cannot be read."""
    opening = stream_opening(stream)
    with suppress(LookupError, TypeError, ValueError, OSError):
        if opening is not None:
            return os.path.realpath(os.path.join(str(opening["root"]), str(opening["folders"]["log"])))
    return None
