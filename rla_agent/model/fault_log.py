"""Log lines of lasting faults. Pure.

One line is logged when a fault begins, another when it is over.

`status` shows a fault as long as it lasts; many files may have it at once, and each is retried. The log gets
one line for each reason, which is the text up to its first colon, and one when it has not occurred for
OVER_S. `Repeats` does the same for lines of other origin: repeats within REPEAT_S are counted, and the next
line has their number.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from rla_client.contract.text.duration_text import duration_text

OVER_S = 10.0  # between two attempts on one file a fault seems to be gone
REPEAT_S = 60.0
MOST = 1000  # reasons, or lines, that are remembered


class FaultLog:
    """The faults of one volume."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float]] = {}  # reason → when it began, when it was last seen

    def look(self, now: float, faults: Iterable[str]) -> list[tuple[int, str]]:
        """Lines for the log, each with its level.

        Args:
            now: seconds of a steady clock.
            faults: texts of all that are there now.
        """
        texts = list(faults)
        reasons = Counter(map(_reason, texts))
        lines = []
        for text in texts:
            reason = _reason(text)
            if reason in self._known or len(self._known) >= MOST:
                continue
            others = reasons[reason] - 1
            self._known[reason] = now, now
            lines.append((logging.WARNING, f"{text}{f' (and {others} more)' if others else ''}"))
        for reason, (began, seen) in list(self._known.items()):
            if reason in reasons:
                self._known[reason] = began, now
            elif now - seen > OVER_S:
                del self._known[reason]
                lines.append((logging.INFO, f"over after {duration_text(seen - began)}: {reason}"))
        return lines


def _reason(text: str) -> str:
    return text.partition(":")[0]


class Repeats(logging.Filter):
    """Filter that passes a warning once in REPEAT_S; the next one has the number of suppressed ones."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], tuple[float, int]] = {}  # when; how often since

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is to be written; its text may change."""
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        text = record.getMessage()
        said, count = self._said.pop((record.name, text), (float("-inf"), 0))
        if 0 <= record.created - said < REPEAT_S:
            self._said[record.name, text] = said, count + 1
            return False
        self._said[record.name, text] = record.created, 0
        if len(self._said) > MOST:
            del self._said[next(iter(self._said))]
        if count:
            record.msg, record.args = f"{text} ({count} more times since)", ()
        return True
