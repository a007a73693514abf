"""Hyper-parameters observed in a program.

Ranks, in ascending order: configuration files, the object of a parser, wandb's config, add_hparams; a higher
rank wins. An object is kept by reference and read again, as scripts may change it later.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


FILES, PARSER, CONFIG, HPARAMS = 0, 1, 2, 3


class ParameterSource:
    """An object that holds parameters.

    Attributes:
        rank: FILES, PARSER, CONFIG or HPARAMS.
        origin: name of the library.
        values: a mapping, or an object with attributes.
        given: names that the command line sets.
    """

    __slots__ = ("given", "origin", "rank", "values")

    def __init__(self, rank: int, origin: str, values: Any, given: tuple[str, ...]) -> None:
        self.rank, self.origin, self.values, self.given = rank, origin, values, given


class MarkdownParameters:
    """Parameters in a Markdown table."""

    def __init__(self, text: str) -> None:
        self.text = text


sources: list[ParameterSource] = []
MAX_SOURCES = 100  # bound for a program that parses in a loop


def add(rank: int, origin: str, values: Any, given: tuple[str, ...] = ()) -> None:
    """Add a source; it replaces an earlier source with the same object."""
    sources[:] = [one for one in sources if one.values is not values][1 - MAX_SOURCES :]
    sources.append(ParameterSource(rank, origin, values, given))


def put(rank: int, origin: str, values: Any) -> None:
    """Add a source in place of the library's earlier ones."""
    if any(one.values is values for one in sources):
        return
    sources[:] = [one for one in sources if one.origin != origin]
    add(rank, origin, values)


def names_given(words: list[str], options: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the options that a command line sets.

    Args:
        words: of the command line.
        options: option (such as `--learning-rate`) → name.
    """
    found = [options[head] for word in words if (head := word.partition("=")[0]) in options]
    return tuple(dict.fromkeys(found))
