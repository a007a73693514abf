"""Alerts that the script itself sends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rla_client.contract.spool.protocol import ALERT_MARK
from rla_client.run.current_logger import warn
from rla_client.stream.values import clean_text

if TYPE_CHECKING:
    from rla_client.run.run_data import RunData

MAX_TITLE_CHARS, MAX_TEXT_CHARS = 200, 2000


def alert(data: RunData, title: str, text: str = "") -> None:
    """See `ExpManager.alert`."""
    title, text = clean_text(str(title)), clean_text(str(text))[:MAX_TEXT_CHARS]
    title = " ".join(title.split())[:MAX_TITLE_CHARS]
    warn(f"{title}: {text}" if text else title)
    if data.run is not None:
        shown = data.run.logger.shown
        step = data.clock.get_time()
        told = {"title": shown(title), "text": shown(text), "time_step": step, "timestamp": time.time()}
        data.run.mark(ALERT_MARK, told)
