"""Reader of parameter files.

They are YAML as OmegaConf writes it, or JSON.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import HYPARAM_FILE_NAME
from rla_client.contract.text.bounded_parsing import MAX_DIGITS, check_yaml, parse_json

if TYPE_CHECKING:
    import yaml


_SIMPLE_LINE = re.compile(r"([A-Za-z_][\w.\-]*): (\S.*)")
# Plain scalars that YAML 1.1, YAML 1.2 and OmegaConf read alike; the YAML loader reads all others.
_YAML_INT = re.compile(r"-?(0|[1-9]\d*)")
_YAML_FLOAT = re.compile(r"-?(0|[1-9]\d*)\.\d+(e[+-]\d+)?")
_YAML_EXPONENT = re.compile(r"-?\d+e-?\d+")  # OmegaConf reads 1e-05 as a number, YAML 1.1 does not
_YAML_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*")
_YAML_SPECIAL = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"])
_YAML_CONSTANTS = {"true": True, "false": False, "null": None}


def read_parameter_file(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """`parameter.json` or `parameter.yaml` of an item folder, None when there is neither.

    Raises:
        BrokenFileError: the file is not a JSON or YAML mapping.
    """
    for suffix, parse in (
        ("json", parse_json),
        ("yaml", lambda data: parse_yaml(data.decode("utf-8", "replace"))),
    ):
        path = f"{os.fspath(folder)}/{HYPARAM_FILE_NAME}.{suffix}"
        try:
            data = read_small(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            found = parse(data)
        except ValueError as error:
            raise BrokenFileError(path, f"no valid {suffix.upper()} ({error})") from error
        if found is None:
            found = {}
        if not isinstance(found, dict):
            raise BrokenFileError(path, "it holds no mapping of names to values")
        return found
    return None


def parse_yaml(text: str) -> Any:  # noqa: ANN401
    """YAML as OmegaConf writes it.

    Flat files of plain scalars are parsed by hand (a full loader needs 10 s for 10,000 of them).

    Raises:
        ValueError: it is not YAML, or beyond the bounds of `bounds`.
    """
    flat: dict[str, Any] = {}
    for line in text.splitlines():
        match = _SIMPLE_LINE.fullmatch(line)
        if match is None or match[1].lower() in _YAML_SPECIAL:
            return _parse_full_yaml(text)
        value = match[2]
        if len(value) <= MAX_DIGITS and _YAML_INT.fullmatch(value):
            flat[match[1]] = int(value)
        elif _YAML_FLOAT.fullmatch(value) or _YAML_EXPONENT.fullmatch(value):
            flat[match[1]] = float(value)
        elif value in _YAML_CONSTANTS:
            flat[match[1]] = _YAML_CONSTANTS[value]
        elif _YAML_WORD.fullmatch(value) and value.lower() not in _YAML_SPECIAL:
            flat[match[1]] = value
        else:
            return _parse_full_yaml(text)
    return flat


def _parse_full_yaml(text: str) -> object:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class OmegaLoader(loader):  # type: ignore[misc]
        """Safe loader that also reads 1e-05 as a number, as OmegaConf does."""

    OmegaLoader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(?:\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    OmegaLoader.add_constructor("tag:yaml.org,2002:int", _whole_number)
    try:
        check_yaml(text)
        return yaml.load(text, OmegaLoader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from error


def _whole_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    if len(str(node.value)) > MAX_DIGITS:
        raise ValueError(f"a number of {len(node.value)} digits")
    return int(loader.construct_yaml_int(node))
