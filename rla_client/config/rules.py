"""The YAML nodes of a configuration, and the rules that read them.

The text is only composed to nodes, never loaded as objects, so nothing in a config runs, and each
node knows its line. A dict becomes the same nodes, without lines. A rule reads the node of one
value or says in the user's words what is wrong with it; `rla_client.config.schema` says which key has
which rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from rla_client.contract.errors import BrokenFileError, ConfigError
from rla_client.contract.files import read_small
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.parsing import check_yaml
from rla_client.contract.textformat import near as nearest

if TYPE_CHECKING:
    import yaml

MAX_CONFIG_BYTES = 1 << 20  # a hand-written file has a few kB; more is some other file
MAX_QUOTED_CHARS = 60  # of a wrong value, in a message

Fault: TypeAlias = "tuple[yaml.Node, str, str]"
"""Where it is, its key with a dot before each part, what is wrong."""


class WrongValueError(Exception):
    """What is wrong with one value, in the user's words."""


class WrongValuesError(Exception):
    """What is wrong in several places below one key."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


class Rule(Protocol):
    """Reads the node of one value, or raises `WrongValueError`."""

    def __call__(self, node: yaml.Node) -> object:
        """The value, or WrongValueError."""


@dataclass(frozen=True, slots=True)
class Text:
    """Any scalar, as it is written."""

    def __call__(self, node: yaml.Node) -> str:
        """The text; a wrong one is not quoted: it may be a password."""
        if not _is_scalar(node):
            raise WrongValueError("must be a text")
        if node.tag.endswith(":bool"):
            raise WrongValueError("means true or false as it is written; put it in quotes")
        return str(node.value)


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    def __call__(self, node: yaml.Node) -> bool:
        """The truth value."""
        value = _plain(node)
        if not isinstance(value, bool):
            raise WrongValueError(f"must be true or false, not {quote(node)}")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A number within bounds, both included; `whole` ones are int, others float."""

    low: float
    high: float = math.inf
    whole: bool = False
    unit: str = ""

    def __call__(self, node: yaml.Node) -> int | float:
        """The number; one given as text counts."""
        try:
            value: int | float = self._read(node)
        except (TypeError, ValueError):
            raise WrongValueError(f"must be {self._wanted()}, not {quote(node)}") from None
        if not (self.low <= value <= self.high and math.isfinite(value)):
            raise WrongValueError(f"must be {self._wanted()}, not {quote(node)}")
        return value

    def _read(self, node: yaml.Node) -> int | float:
        plain = _plain(node)
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
        if not _is_scalar(node) or node.value not in self.words:
            raise WrongValueError(f"must be {_either(self.words)}, not {quote(node)}{near(node, self.words)}")
        return str(node.value)


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts, or one text alone; of `words` only, where there are some."""

    words: tuple[str, ...] = ()

    def __call__(self, node: yaml.Node) -> tuple[str, ...]:
        """The texts in order, repeated ones once."""
        element: Rule = Choice(self.words) if self.words else Text()
        items = node.value if shape(node) == "sequence" else [node]
        if shape(node) == "mapping" or any(not _is_scalar(item) for item in items):
            raise WrongValueError("must be a list of texts")
        return tuple(dict.fromkeys(str(element(item)) for item in items))


@dataclass(frozen=True, slots=True)
class Kinds:
    """`all`, `log`, or a list of data kinds; always read to a tuple of kinds."""

    def __call__(self, node: yaml.Node) -> tuple[str, ...]:
        """The kinds."""
        if _is_scalar(node) and node.value == "all":
            return DEFAULT_LOG_TYPES
        try:
            return Texts(DEFAULT_LOG_TYPES)(node)
        except WrongValueError as error:
            raise WrongValueError(f"{error} (or the one word all)") from None


def node_of_file(path: Path) -> yaml.Node | None:
    """The root node of a YAML file, None if it is empty.

    Raises:
        ConfigError: it cannot be read, or is not YAML.
    """
    import yaml  # noqa: PLC0415 - 10 ms that `import rla_client` must not cost

    try:
        data = read_small(path, MAX_CONFIG_BYTES, links=True)
    except FileNotFoundError:
        message = "there is no such file; `rla init` writes one with every key explained"
        raise ConfigError(str(path), [message]) from None
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror or error}"]) from error
    except BrokenFileError as error:
        raise ConfigError(
            str(path), [f"cannot be read: {error.problem}, so it is not a configuration"]
        ) from error
    try:
        check_yaml(data, yaml.SafeLoader)
        return yaml.compose(data, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(str(path), [f"{where}is not YAML: {problem}"]) from error


def node_of_mapping(source: Mapping[str, Any]) -> yaml.Node:
    """The same node tree, without lines, for a mapping (dict, OmegaConf, …).

    Raises:
        ConfigError: a value is of a type that no configuration holds.
    """
    import yaml  # noqa: PLC0415 - 10 ms that `import rla_client` must not cost

    class Representer(yaml.representer.SafeRepresenter):
        pass

    def as_list(representer: yaml.representer.SafeRepresenter, data: Iterable[Any]) -> yaml.Node:
        return yaml.representer.SafeRepresenter.represent_list(representer, list(data))

    def as_dict(representer: yaml.representer.SafeRepresenter, data: Mapping[Any, Any]) -> yaml.Node:
        return yaml.representer.SafeRepresenter.represent_dict(representer, dict(data))

    def as_text(representer: yaml.representer.SafeRepresenter, data: object) -> yaml.Node:
        return yaml.representer.SafeRepresenter.represent_str(representer, str(data))

    Representer.add_multi_representer(tuple, as_list)
    Representer.add_multi_representer(Mapping, as_dict)  # type: ignore[type-abstract]
    Representer.add_multi_representer(PurePath, as_text)
    try:
        node: yaml.Node = Representer().represent_data(dict(source))
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        fault = f"holds something that is not plain data: {error.args[-1]!r}"
        raise ConfigError("the config dict", [fault]) from error
    return node


class SectionReader:
    """Reads keys and values and collects all that is wrong with them in `faults`."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def mapping(
        self,
        node: yaml.Node,
        below: str,
        known: Mapping[str, str] | None,
        advice: Mapping[str, str] | None = None,
    ) -> dict[str, yaml.Node]:
        """Value nodes by key; unknown and repeated keys are faults.

        Args:
            node: of the section.
            below: its key, a dot before each part.
            known: key → what it sets; None: any key.
            advice: unknown key → what to say of it.
        """
        if shape(node) != "mapping":
            self.faults.append((node, below, f"must hold keys and values, not {quote(node)}"))
            return {}
        try:
            pairs = _entries(cast("yaml.MappingNode", node))
        except WrongValueError as error:
            self.faults.append((node, below, str(error)))
            return {}
        found: dict[str, yaml.Node] = {}
        given: set[str] = set()
        for key_node, value in pairs:
            if not _is_scalar(key_node):
                self.faults.append((key_node, below, f"a key must be a name, not {quote(key_node)}"))
                continue
            key = str(key_node.value)
            sets = key if known is None else known.get(key)
            if sets is None:
                text = (advice or {}).get(key) or f"unknown key{near(key_node, tuple(known or ()))}"
                self.faults.append((key_node, f"{below}.{key}", text))
            elif sets in given:
                self.faults.append((key_node, f"{below}.{key}", "is given twice"))
            else:
                found[key] = value
                given |= set() if is_empty(value) else {sets}
        return found

    def value(self, rule: Rule, node: yaml.Node, below: str) -> Any:  # noqa: ANN401 - the rule knows
        """What a rule reads; None where the node is empty or faulty."""
        if is_empty(node):
            return None
        try:
            return rule(node)
        except WrongValueError as error:
            self.faults.append((node, below, str(error)))
        except WrongValuesError as error:
            self.faults += [(where, below + key, text) for where, key, text in error.faults]
        return None


def _entries(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    """Key and value nodes of a mapping; `<<` merges are resolved, own keys winning."""
    import yaml  # noqa: PLC0415 - loaded already: there is a node

    if not any(key.tag.endswith(":merge") for key, _ in node.value):
        return list(node.value)
    try:
        yaml.constructor.SafeConstructor().flatten_mapping(node)
    except yaml.YAMLError as error:
        raise WrongValueError(f"has a `<<` that cannot be merged: {error}") from error
    return list({str(key.value): (key, value) for key, value in node.value}.values())


def shape(node: yaml.Node) -> str:
    """scalar, sequence or mapping."""
    return str(getattr(node, "id", ""))  # each of the three classes has it, the stubs do not say so


def is_empty(node: yaml.Node) -> bool:
    """Left empty, null or '': the original's template has `port: ''`; it means the default."""
    return node.tag.endswith(":null") or (_is_scalar(node) and node.value == "")


def _is_scalar(node: yaml.Node) -> bool:
    return shape(node) == "scalar"


def _plain(node: yaml.Node) -> object:
    """The bool, int, float or str that a scalar stands for; None if it is none of these."""
    import yaml  # noqa: PLC0415 - loaded already: there is a node

    if not _is_scalar(node):
        return None
    try:
        value: object = yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError):
        return None
    return value if isinstance(value, (bool, int, float, str)) else None


def quote(node: yaml.Node) -> str:
    """The node's text for a message, cut if long."""
    if not _is_scalar(node):
        return "a list" if shape(node) == "sequence" else "keys and values"
    text = str(node.value)
    return repr(text if len(text) <= MAX_QUOTED_CHARS else text[:MAX_QUOTED_CHARS] + "…")


def near(node: yaml.Node, words: tuple[str, ...]) -> str:
    """`; did you mean 'x'?` where one of `words` is close to the node's text."""
    close = nearest(str(node.value), words, count=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
