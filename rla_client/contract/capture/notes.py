"""Notes of captured processes about their runs.

`rla-agent run` makes an empty file, whose path is in NOTES_VARIABLE. Each process appends lines of one word
and a text: `loaded <interpreter>`, `absent <interpreter>`, `library <part>`, `refused <why>`,
`dropped <number>`, `run <log folder>`.
"""

from __future__ import annotations

import os

NOTES_VARIABLE = "RLA_CAPTURE_NOTES"
LOADED, ABSENT, LIBRARY, REFUSED, DROPPED, RUN = "loaded", "absent", "library", "refused", "dropped", "run"
MAX_BYTES = 1 << 20  # of the file: ten thousand workers have room
MAX_TEXT = 500
NOT_LOADED = (
    "no Python process loaded it: `python -I`, `-E` or `-S`, or the command sets another PYTHONPATH; "
    "`rla capture install` in that environment is the other way"
)


def add_note(word: str, text: str) -> None:
    """Append a line; a full disk or a file that is gone is no error."""
    path = os.environ.get(NOTES_VARIABLE)
    if not path:
        return
    line = " ".join(f"{word} {text}".split())[:MAX_TEXT] + "\n"
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_size < MAX_BYTES:
                os.write(file, line.encode("utf-8", "backslashreplace"))
        finally:
            os.close(file)
    except OSError:
        return


def outcome(text: str) -> tuple[str, str]:
    """Where the captured runs are, and why there is none, for people; one of them is empty.

    Args:
        text: content of the file.
    """
    if why := why_nothing(text):
        return "", f"nothing was captured: {why}"
    first, *others = dict.fromkeys(_told(text)[RUN])
    return f"recorded in {first}" + (f", and {len(others)} more" if others else ""), ""


def _told(text: str) -> dict[str, list[str]]:
    """Word → its texts."""
    told: dict[str, list[str]] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        told.setdefault(word, []).append(rest)
    return told


def why_nothing(text: str) -> str:
    """Why no run was captured, for a message that begins with `nothing was captured`; empty where one was.

    Args:
        text: content of the file.
    """
    told = _told(text)
    if RUN in told:
        return ""
    count = sum(int(number) for number in told.get(DROPPED, ()) if number.isdecimal())
    listed = {word: ", ".join(dict.fromkeys(rests)) for word, rests in told.items()}
    reasons = {  # the first that holds
        REFUSED: told.get(REFUSED, [""])[-1],
        DROPPED: f"only worker processes logged ({count} values), and no run was open for them to join",
        LIBRARY: f"{listed.get(LIBRARY)} logged no metric",
        LOADED: "the program imported no library whose metrics are known",
        ABSENT: f"rla_client is not installed for {listed.get(ABSENT)}: install rla-agent there",
    }
    return next((reason for word, reason in reasons.items() if word in told), NOT_LOADED)
