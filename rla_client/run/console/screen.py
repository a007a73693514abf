"""The lines of a terminal that stay.

Progress bars write over what they wrote: by a carriage return in one line (tqdm), by moving up in several
(nested bars). Only what was left standing becomes a line. Colours and other escapes are dropped.
"""

from __future__ import annotations

import re

WINDOW = 100  # lines, below which what is higher stands still
UP_S = 1.0  # after this long without moving up, lines above the last one stand still
QUIET_S = 0.1  # a bar that moves up does so within this time after its newline
MAX_COLUMNS = 1 << 16  # of a line that is still open
_TOKEN = re.compile(
    r"\x1b\[(?P<number>\d{0,20})[0-?]{0,100}[ -/]{0,9}(?P<move>[@-~])|"
    r"\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|\x1b[^\[\]\x1b\r\n\b]|"
    r"(?P<control>[\r\n\b])|(?P<text>[^\x1b\r\n\b\x00\x07]+)"  # NUL and BEL show nothing
)
_OPEN = re.compile(
    r"\x1b(\[[0-?]{0,120}[ -/]{0,9}|\][^\x07\x1b]{0,1000}\x1b?)?\Z"
)  # an escape that continues in the next piece


class Screen:
    """The last lines of what was printed, and where the cursor is among them."""

    def __init__(self) -> None:
        self._rows = [""]
        self._row = self._column = 0
        self._rest = ""
        self._up_at = self._line_at = float("-inf")

    def feed(self, text: str, now: float) -> str:
        """Take a piece of output; the whole lines that stand still by now.

        Args:
            text: continues where the last piece ended.
            now: monotonic seconds.
        """
        text = self._rest + text
        found = _OPEN.search(text)
        self._rest = found[0] if found else ""
        for token in _TOKEN.finditer(text[: len(text) - len(self._rest)]):
            if token["text"]:
                self._write(token["text"])
            elif token["control"]:
                self._control(token["control"], now)
            elif token["move"]:
                self._move(token["move"], token["number"], now)
        return self.settled(now)

    def settled(self, now: float) -> str:
        """The whole lines that stand still by now, if they were not given before."""
        still = now - self._up_at > UP_S and now - self._line_at > QUIET_S
        count = self._row if still else max(self._row - WINDOW, 0)
        gone, self._rows = self._rows[:count], self._rows[count:]
        self._row -= count
        return "".join(f"{row}\n" for row in gone)

    def end(self) -> str:
        """All that is left; nothing comes any more."""
        rows, self._rows = self._rows, [""]
        self._row = self._column = 0
        if not rows[-1]:  # behind the last newline
            rows.pop()
        return "".join(f"{row}\n" for row in rows)

    def _write(self, text: str) -> None:
        row = self._rows[self._row]
        if self._column == len(row):  # what nearly all of it is
            row += text
        else:
            row = row[: self._column].ljust(self._column) + text + row[self._column + len(text) :]
        self._rows[self._row] = row
        self._column += len(text)
        if self._column > MAX_COLUMNS:
            self._down()
            self._column = 0

    def _control(self, what: str, now: float) -> None:
        if what == "\n":
            self._down()
            self._line_at = now
        self._column = max(self._column - 1, 0) if what == "\b" else 0

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append("")

    def _move(self, what: str, number: str, now: float) -> None:
        count = min(int(number[:4] or 1), WINDOW)
        if what == "A":
            self._row = max(self._row - count, 0)
            self._up_at = now
        elif what == "B":
            self._row = min(self._row + count, len(self._rows) - 1)
        elif what in "CDG":
            to = {"C": self._column + count, "D": self._column - count, "G": count - 1}[what]
            self._column = min(max(to, 0), MAX_COLUMNS)
        elif what == "K":
            self._rows[self._row] = "" if number == "2" else self._rows[self._row][: self._column]
        elif what == "J":
            del self._rows[self._row + 1 :]
