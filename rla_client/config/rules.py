"""Rules for the values of a configuration.

A rule reads the node of one value, or raises an error whose text completes "<key> …"; `config/schema.py` maps
keys to rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rla_client.config.yaml_nodes import is_scalar, quote, scalar_value, shape
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.text.spelling import near as nearest

if TYPE_CHECKING:
    import yaml


class WrongValueError(Exception):
    """A fault of one value; the text is for the user."""


class Rule(Protocol):
    """Reads the node of one value, or raises `WrongValueError`."""

    def __call__(self, node: yaml.Node) -> object:
        """The value.

        Raises:
            WrongValueError: the node has another form.
        """


@dataclass(frozen=True, slots=True)
class Text:
    """Any scalar, as it is written."""

    def __call__(self, node: yaml.Node) -> str:
        """The text. Errors do not quote it, as it may be a password."""
        if not is_scalar(node):
            raise WrongValueError("must be a text")
        if node.tag.endswith(":bool"):
            raise WrongValueError("means true or false as it is written; put it in quotes")
        return str(node.value)


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    def __call__(self, node: yaml.Node) -> bool:
        """The truth value."""
        value = scalar_value(node)
        if not isinstance(value, bool):
            raise WrongValueError(f"must be true or false, not {quote(node)}")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A number from `low` to `high`, inclusive; int if `whole`, else float."""

    low: float
    high: float = math.inf
    whole: bool = False
    unit: str = ""

    def __call__(self, node: yaml.Node) -> int | float:
        """The number, which may be written as a text."""
        try:
            value: int | float = self._read(node)
        except (TypeError, ValueError):
            raise WrongValueError(f"must be {self._wanted()}, not {quote(node)}") from None
        if not (self.low <= value <= self.high and math.isfinite(value)):
            raise WrongValueError(f"must be {self._wanted()}, not {quote(node)}")
        return value

    def _read(self, node: yaml.Node) -> int | float:
        plain = scalar_value(node)
        if isinstance(plain, bool) or not isinstance(plain, (int, float, str)):
            raise TypeError
        if not self.whole:
            return float(plain)
        if isinstance(plain, float) and not plain.is_integer():
            raise ValueError
        return int(plain)

    def _wanted(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        unit = f" of {self.unit}" if self.unit else ""
        if self.low == -math.inf:
            return f"{kind}{unit}"
        if self.high == math.inf:
            return f"{kind}{unit}, at least {_digits(self.low)}"
        return f"{kind}{unit} from {_digits(self.low)} to {_digits(self.high)}"


def _digits(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else f"{bound:g}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def __call__(self, node: yaml.Node) -> str:
        """The word."""
        if not is_scalar(node) or node.value not in self.words:
            raise WrongValueError(f"must be {_either(self.words)}, not {quote(node)}{near(node, self.words)}")
        return str(node.value)


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts or a single text; if `words` is not empty, each must be one of these."""

    words: tuple[str, ...] = ()

    def __call__(self, node: yaml.Node) -> tuple[str, ...]:
        """The texts in order, without duplicates."""
        element: Rule = Choice(self.words) if self.words else Text()
        items = node.value if shape(node) == "sequence" else [node]
        if shape(node) == "mapping" or any(not is_scalar(item) for item in items):
            raise WrongValueError("must be a list of texts")
        return tuple(dict.fromkeys(str(element(item)) for item in items))


@dataclass(frozen=True, slots=True)
class Kinds:
    """`all`, one data kind, or a list of data kinds."""

    def __call__(self, node: yaml.Node) -> tuple[str, ...]:
        """The kinds."""
        if is_scalar(node) and node.value == "all":
            return DEFAULT_LOG_TYPES
        try:
            return Texts(DEFAULT_LOG_TYPES)(node)
        except WrongValueError as error:
            raise WrongValueError(f"{error} (or the one word all)") from None


def near(node: yaml.Node, words: tuple[str, ...]) -> str:
    """`; did you mean 'x'?` if one of `words` is close to the node's text, else empty."""
    close = nearest(str(node.value), words, count=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
