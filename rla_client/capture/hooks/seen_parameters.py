"""Hyper-parameters observed in a program.

Those of a higher rank win: configuration files, the object of a parser, wandb's config, add_hparams. An
object is kept by reference and read again, as scripts go on to change it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


FILES, PARSER, CONFIG, HPARAMS = 0, 1, 2, 3


class ParameterSource:
    """One place of parameters.

    Attributes:
        rank: of those above.
        origin: name of the library.
        values: a mapping, or an object with attributes.
        given: names that the command line sets.
    """

    __slots__ = ("given", "origin", "rank", "values")

    def __init__(self, rank: int, origin: str, values: Any, given: tuple[str, ...]) -> None:
        self.rank, self.origin, self.values, self.given = rank, origin, values, given


class MarkdownParameters:
    """Parameters that stand in a Markdown table."""

    def __init__(self, text: str) -> None:
        self.text = text


sources: list[ParameterSource] = []
MAX_SOURCES = 100  # a program that parses in a loop


def add(rank: int, origin: str, values: Any, given: tuple[str, ...] = ()) -> None:
    """Keep a place of parameters; the same object again takes its former place."""
    sources[:] = [one for one in sources if one.values is not values][1 - MAX_SOURCES :]
    sources.append(ParameterSource(rank, origin, values, given))


def put(rank: int, origin: str, values: Any) -> None:
    """Keep a place of parameters in the stead of the library's former one."""
    if any(one.values is values for one in sources):
        return
    sources[:] = [one for one in sources if one.origin != origin]
    add(rank, origin, values)


def names_given(words: list[str], options: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the options that a command line sets.

    Args:
        words: of the command line.
        options: option, e.g. `--learning-rate`, to name.
    """
    found = [options[head] for word in words if (head := word.partition("=")[0]) in options]
    return tuple(dict.fromkeys(found))
