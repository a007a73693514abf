"""Values in a sweep file.

`1e-3` is a number here, though YAML takes it for text.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, Any, cast

from rla_client.config.rules import Text, WrongValueError
from rla_client.config.yaml_nodes import quote, shape
from rla_client.sweep.space import Value

if TYPE_CHECKING:
    import yaml

MAX_SEEDS = 10_000
MAX_WHOLE = (1 << 63) - 1  # 64 bits, as in programs and numpy
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # text in YAML 1.1
_SPAN = re.compile(r"(-?\d{1,18})\s*\.\.\s*(-?\d{1,18})")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


def plain_value(node: yaml.Node) -> Value:
    """Value of a scalar."""
    import yaml  # noqa: PLC0415 - loaded already: there is a node

    if shape(node) != "scalar":
        raise WrongValueError(f"must be one value, not {quote(node)}")
    is_bare = cast("yaml.ScalarNode", node).style is None
    if node.tag.endswith(":str") and is_bare and _NUMBER.fullmatch(node.value):
        value: Any = float(node.value)
    elif is_bare and ":" in node.value:  # 24:00:00 is a time, but a number in YAML 1.1
        value = str(node.value)
    else:
        try:
            value = yaml.constructor.SafeConstructor().construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            problem = getattr(error, "problem", None) or str(error)
            raise WrongValueError(f"cannot be read: {problem}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise WrongValueError(f"must be a finite number, not {quote(node)}")
    if isinstance(value, int) and abs(value) > MAX_WHOLE:
        raise WrongValueError(f"must be a whole number of 64 bits, not {quote(node)}")
    if isinstance(value, str):
        check_text(value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(node.value)


def command_words(node: yaml.Node) -> tuple[str, ...]:
    """Words of a command line, or of a list of program and arguments."""
    if shape(node) == "sequence":
        if not node.value or any(shape(one) != "scalar" for one in node.value):
            raise WrongValueError("must be the program and its arguments")
        words = tuple(str(one.value) for one in node.value)
        check_text("".join(words))
        return words
    try:
        words = tuple(shlex.split(Text()(node)))
    except ValueError as error:
        raise WrongValueError(f"has a quote that does not end: {error}") from None
    if not words or not words[0]:
        raise WrongValueError("names no program")
    check_text("".join(words))
    return words


def check_text(text: str) -> None:
    """Raise WrongValueError if a text cannot be passed to a program."""
    if "\0" in text:
        raise WrongValueError("holds a NUL character, which no program can be given")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise WrongValueError("holds half a character, which no program can be given")


def size_bytes(node: yaml.Node) -> int:
    """Bytes of a number with or without a unit."""
    found = _SIZE.fullmatch(Text()(node).strip())
    if found is None:
        raise WrongValueError(f"must be a size such as 2GiB or 500MB, not {quote(node)}")
    number, unit, binary = found.groups()
    step = 1024 if binary else 1000
    found_bytes = float(number) * step ** " KMGT".index(unit.upper() or " ")
    if found_bytes > MAX_WHOLE:
        raise WrongValueError(f"is more than there is anywhere: {quote(node)}")
    return int(found_bytes)


def seed_list(node: yaml.Node) -> tuple[int, ...]:
    """Seeds, given as their number, as first and last, or as a list."""
    wanted = f"must be how many, as in 5, or 1..5, or a list of whole numbers, not {quote(node)}"
    if shape(node) == "sequence":
        found = [plain_value(one) for one in node.value]
        if not found or any(isinstance(one, bool) or not isinstance(one, int) for one in found):
            raise WrongValueError(wanted)
        if len(set(found)) < len(found):
            raise WrongValueError("names a seed twice")
        return cast("tuple[int, ...]", tuple(found))
    value = plain_value(node)
    span = _SPAN.fullmatch(str(value))
    count = value if isinstance(value, int) and not isinstance(value, bool) else 0
    first, end = (int(span[1]), int(span[2]) + 1) if span else (0, count)
    if not 0 < end - first <= MAX_SEEDS:
        raise WrongValueError(f"{wanted}; at most {MAX_SEEDS}")
    return tuple(range(first, end))
