"""The YAML nodes of a configuration.

The text is composed to nodes and never loaded as objects, so that a configuration cannot run code and each
node has a line. A dict becomes the same nodes, without lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError, ConfigError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.text.bounded_parsing import check_yaml

if TYPE_CHECKING:
    import yaml


MAX_CONFIG_BYTES = 1 << 20  # a hand-written file has a few kB; a larger file is something else
MAX_QUOTED_CHARS = 60  # of a value in a message


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
    """The root node of a mapping (dict, OmegaConf, …), without lines.

    Raises:
        ConfigError: a value is not plain data.
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


def shape(node: yaml.Node) -> str:
    """scalar, sequence or mapping."""
    return str(getattr(node, "id", ""))  # missing in the type stubs


def is_empty(node: yaml.Node) -> bool:
    """Whether a value is empty, null or '', which means the default (RLA's template has `port: ''`)."""
    return node.tag.endswith(":null") or (is_scalar(node) and node.value == "")


def is_scalar(node: yaml.Node) -> bool:
    """Whether a node is one value."""
    return shape(node) == "scalar"


def scalar_value(node: yaml.Node) -> object:
    """The bool, int, float or str of a scalar; None for other values."""
    import yaml  # noqa: PLC0415 - loaded already: there is a node

    if not is_scalar(node):
        return None
    try:
        value: object = yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError):
        return None
    return value if isinstance(value, (bool, int, float, str)) else None


def quote(node: yaml.Node) -> str:
    """A description of the node for a message: its text, cut if long, or its shape."""
    if not is_scalar(node):
        return "a list" if shape(node) == "sequence" else "keys and values"
    text = str(node.value)
    return repr(text if len(text) <= MAX_QUOTED_CHARS else text[:MAX_QUOTED_CHARS] + "…")
