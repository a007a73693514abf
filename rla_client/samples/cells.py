"""Cells of a sample as plain data.

Text, numbers, lists and dicts are copied at the call. Token ids, masks and log-probabilities, many times as
large as the text, are left out unless requested: values that are no text or single number, under a name that
says so. A cell that is too long loses its middle; `cut` of its row names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import islice
from types import NoneType
from typing import Any, TypeAlias

from rla_client.contract.errors import FrameTooLargeError
from rla_client.stream.values import MAX_DEPTH, clean_text, text_of, to_plain

CUT = "cut"  # a column: the names of cells that were cut
CUT_TEXT = re.compile(r"\n… \d+ characters cut …\n")  # see `shortened`
_EXACT = frozenset({float, bool, NoneType})
_WORD = 1 << 63
_TOKENS = re.compile(r"(^|_)(ids?|tokens|log_?probs?|masks?)$", re.IGNORECASE)
_MISSING = frozenset({"NAType", "NaTType"})  # pandas' marks of missing values
MAX_ITEMS = 1 << 18  # of a cell: more would be cut anyway, and some objects have no end
Refer: TypeAlias = Callable[[str, object], "dict[str, Any] | None"]


def plain_row(
    row: Mapping[Any, Any], max_chars: int, *, withheld: set[str] | None, refer: Refer | None = None
) -> dict[str, Any]:
    """A row as plain data; never raises because of a value.

    Args:
        row: of the user.
        max_chars: of a cell.
        withheld: gets the names of columns of token ids, masks and log-probabilities, which are left out;
            None: they are kept.
        refer: saves a picture or other media and returns the reference to its file; None for other values.
    """
    plain: dict[str, Any] = {}
    cut: list[str] = []
    for key, value in row.items():
        name = key if type(key) is str and key.isascii() else text_of(key)
        kind = type(value)
        if kind is str:
            if len(value) > max_chars:
                value = shortened(value, max_chars)  # noqa: PLW2901
                cut.append(name)
        elif kind in _EXACT or (kind is int and -_WORD < value < _WORD):
            pass
        else:
            if withheld is not None and is_tokens(name) and _may_be_tokens(value):
                withheld.add(name)
                continue
            value, size = _Tree(None if refer is None else partial(refer, name)).plain(value)  # noqa: PLW2901
            if size > max_chars:
                value = _shortened_tree(value, max_chars)  # noqa: PLW2901
                cut.append(name)
        plain[name] = value
    if cut:
        plain[CUT] = cut
    return plain


def clean_row(row: dict[str, Any]) -> dict[str, Any]:
    """A plain row whose text UTF-8 can encode."""
    return {clean_text(name): _clean(value) for name, value in row.items()}


def shortened(text: str, max_chars: int) -> str:
    """A text without its middle, of at most `max_chars` characters or little more."""
    half = max_chars // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters cut …\n{text[len(text) - half :]}"


@lru_cache(maxsize=1024)  # names may carry numbers
def is_tokens(name: str) -> bool:
    """Whether a column has a name as token ids, masks or log-probabilities have."""
    return _TOKENS.search(name) is not None


def _may_be_tokens(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, int | str) or getattr(value, "ndim", 1) == 0:  # a count of them, an id
        return False
    return not (isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value))


class _Tree:
    """The copy of one cell.

    Args:
        refer: see `plain_row`, without the cell's name.
    """

    def __init__(self, refer: Callable[[object], dict[str, Any] | None] | None) -> None:
        self._refer = refer
        self._left = MAX_ITEMS

    def plain(self, value: Any, path: tuple[int, ...] = ()) -> tuple[Any, int]:  # noqa: ANN401, PLR0911 - one line a kind
        """Plain data with its approximate number of characters; `path`: ids of the containers around it."""
        kind = type(value)
        self._left -= 1
        if kind is str:
            return value, len(value)
        if kind in _EXACT or (kind is int and -_WORD < value < _WORD):
            return value, 8
        if len(path) >= MAX_DEPTH or id(value) in path or self._left < 0:
            return "...", 3
        if callable(getattr(value, "model_dump", None)):  # a message of a client library
            try:
                value = value.model_dump()
            except Exception:  # noqa: BLE001 - foreign code; logging never ends training
                return text_of(value), 0
        if isinstance(value, Mapping):
            below = (*path, id(value))
            found: dict[str, Any] = {}
            size = 2
            for key, one in value.items():
                if self._left < 0:
                    found["..."] = "..."
                    break
                name = text_of(key)
                found[name], more = self.plain(one, below)
                size += len(name) + more + 4
            return found, size
        if isinstance(value, list | tuple):
            below = (*path, id(value))
            pairs = [self.plain(one, below) for one in islice(value, max(self._left, 0) + 1)]
            return [one for one, _ in pairs], sum(size for _, size in pairs) + 2 * len(pairs)
        return self._leaf(value)

    def _leaf(self, value: Any) -> tuple[Any, int]:  # noqa: ANN401
        if type(value).__name__ in _MISSING:
            return None, 8
        if self._refer is not None and (reference := self._refer(value)) is not None:
            return reference, sum(len(name or "") for name in reference.values())
        try:
            plain: Any = to_plain(value)
        except FrameTooLargeError:
            plain = text_of(value)
        return plain, _size_of(plain)


def _size_of(plain: Any) -> int:  # noqa: ANN401
    if isinstance(plain, str):
        return len(plain)
    return sum(map(_size_of, plain)) + 2 if isinstance(plain, list) else 8


def _shortened_tree(value: Any, max_chars: int) -> str:  # noqa: ANN401
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return shortened(text, max_chars)


def _clean(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(name): _clean(one) for name, one in value.items()}
    return [_clean(one) for one in value] if isinstance(value, list) else value
