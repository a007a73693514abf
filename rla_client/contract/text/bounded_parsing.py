"""Bounded parsing of untrusted JSON or YAML.

A file of a few bytes can expand to billions of values (aliases of aliases, merges of merges), to a number
that takes minutes to print, or to lists so deep that walking them exhausts the stack. The bounds apply to the
expanded content, so that anchors and aliases may be used as usual.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_VALUES = 100_000  # of one text, each alias as often as it is used; YAML: with the keys
MAX_CHARS = 4 << 20  # of all keys and values, the same
MAX_DEPTH = 100  # lists and mappings inside one another
MAX_DIGITS = 1000  # of a whole number; a 128-bit seed has 39
MAX_DIRECTIVES = 10  # libyaml compares each with all others


def parse_json(data: bytes, max_values: int = MAX_VALUES) -> Any:  # noqa: ANN401
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or beyond the bounds.
    """
    if data.count(b"[") + data.count(b"{") > max_values:  # each costs 100 bytes once it is parsed
        raise ValueError(f"more than {max_values} lists and mappings")
    try:
        found = json.loads(data, parse_int=_whole_number)
    except RecursionError:
        raise ValueError(f"more than {MAX_DEPTH} lists and mappings inside one another") from None
    _check_size(found, max_values)
    return found


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _check_size(value: object, max_values: int) -> None:
    level: list[Any] = [value]
    count = depth = 0
    while level:
        count += len(level)
        depth += 1
        if count > max_values:
            raise ValueError(f"more than {max_values} values")
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} lists and mappings inside one another")
        inner = [one for one in level if isinstance(one, dict | list)]
        level = [below for one in inner for below in (one.values() if isinstance(one, dict) else one)]


def check_yaml(text: str | bytes, loader: Any = None) -> None:  # noqa: ANN401 - a class of pyyaml's
    """Check that a YAML text expands to a bounded value, before anything is built of it.

    Args:
        text: the text to be loaded.
        loader: which loader's messages and line numbers errors have; None: the fastest.

    Raises:
        ValueError: it is beyond the bounds.
        yaml.YAMLError: it is not YAML.
    """
    import yaml  # noqa: PLC0415 - 10 ms that `import rla_client` must not cost

    directives = re.findall(rb"^%" if isinstance(text, bytes) else "^%", text, re.MULTILINE)  # type: ignore[arg-type]
    if len(directives) > MAX_DIRECTIVES:
        raise ValueError(f"more than {MAX_DIRECTIVES} directives")
    tally = _Tally()
    for event in yaml.parse(text, loader or getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        tally.add(event)


class _Tally:
    """Number of values and characters that a series of YAML events expands to."""

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[int, int]] = {}  # by anchor
        self._open: list[tuple[str | None, int, int]] = []  # anchor, and what was counted before it
        self._values = self._chars = 0

    def add(self, event: Any) -> None:  # noqa: ANN401 - yaml.Event
        """Count one event.

        Raises:
            ValueError: it leads beyond the bounds.
        """
        kind = type(event).__name__
        anchor = getattr(event, "anchor", None)
        if kind == "AliasEvent":
            # an anchor that is still open holds itself: without end; an unknown one the loader refuses
            endless = any(name == anchor for name, _, _ in self._open)
            values, chars = (MAX_VALUES, 0) if endless else self._sizes.get(str(anchor), (0, 0))
            self._count(values + 1, chars)
        elif kind == "ScalarEvent":
            self._count(1, len(event.value))
            if anchor is not None:
                self._sizes[anchor] = (1, len(event.value))
        elif kind in {"SequenceStartEvent", "MappingStartEvent"}:
            self._open.append((anchor, self._values, self._chars))
            self._count(1, 0)
        elif kind in {"SequenceEndEvent", "MappingEndEvent"}:
            name, values, chars = self._open.pop()
            if name is not None:
                self._sizes[name] = (self._values - values, self._chars - chars)

    def _count(self, values: int, chars: int) -> None:
        self._values += values
        self._chars += chars
        if self._values > MAX_VALUES or self._chars > MAX_CHARS:
            raise ValueError(f"written out, it has more than {MAX_VALUES} values or {MAX_CHARS} characters")
        if len(self._open) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} lists and mappings inside one another")
