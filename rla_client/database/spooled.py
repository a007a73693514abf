"""Which folder a stream of this machine's spool writes into: its opening frame says so."""

from __future__ import annotations

import os
from pathlib import Path

from rla_client.contract.opening import stream_opening


def log_folder(stream: Path) -> str | None:
    """Log folder of the run of a stream, without links; None where that cannot be read."""
    opening = stream_opening(stream)
    return None if opening is None else os.path.realpath(opening.log_folder)
