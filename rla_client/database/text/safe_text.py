"""Text from files without control characters.

Printed text may come from untrusted files, so control characters are replaced by `?` and never reach the
terminal.
"""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(value: object) -> str:
    """A value as one line of text without control characters."""
    if value is None:
        return "-"
    if type(value) is int:
        return repr(value)
    if type(value) is float:
        return f"{value:.6g}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if text.isprintable():  # surrogates are not
        return text
    text = text.encode("utf-8", "replace").decode()
    return _CONTROL.sub("?", text)


def lines_text(text: str) -> str:
    """Lines of a file with their tabs, but without other control characters."""
    rows = text.removesuffix("\n").split("\n")
    return "\n".join("\t".join(map(clean, row.removesuffix("\r").split("\t"))) for row in rows)
