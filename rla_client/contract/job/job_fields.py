"""Checked fields of a job."""

from __future__ import annotations

import re
from typing import TypeGuard

from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.text.number_parsing import INT64

MAX_TEXT = 4096
_TOKEN = re.compile(r"[0-9a-f]{16}")


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def int64_field(value: object, what: str) -> int:
    """A whole number of 64 bits.

    Raises:
        RemoteProtocolError: it is none.
    """
    if not _is_int(value) or not -INT64 <= value < INT64:
        raise RemoteProtocolError(f"{what} is not a 64-bit integer")
    return value


def count_field(value: object, what: str) -> int:
    """A whole number of 64 bits, 0 or more.

    Raises:
        RemoteProtocolError: it is none.
    """
    if not _is_int(value) or not 0 <= value < INT64:
        raise RemoteProtocolError(f"{what} is not a count")
    return value


def positive_field(value: object, what: str) -> int:
    """A whole number of 64 bits, 1 or more.

    Raises:
        RemoteProtocolError: it is none.
    """
    found = count_field(value, what)
    if found < 1:
        raise RemoteProtocolError(f"{what} must be at least 1")
    return found


def text_field(value: object, what: str) -> str:
    """A text of at most MAX_TEXT characters.

    Raises:
        RemoteProtocolError: it is none.
    """
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise RemoteProtocolError(f"{what} is not a short text")
    return value


def token_field(value: object) -> str:
    """The token of a save: 16 hex digits.

    Raises:
        RemoteProtocolError: it is none.
    """
    if not isinstance(value, str) or _TOKEN.fullmatch(value) is None:
        raise RemoteProtocolError("token is not 16 hex digits")
    return value
