"""Hyper-parameters as query results give them, and the places of a database that hold them.

`HyperParams` is a dict whose keys are also attributes and dotted paths: `hp["a"]["b"]`,
`hp.a.b`, `hp.dotted("a.b")`.

Where they come from, first found wins: `parameter.json|yaml` under hyperparameter, log, code;
the archive_tester JSON of ours; the archive_tester pickle of the original (never unpickled, see
safe_pickle); the `key: …, value: …` lines of backup.txt; the `&key=value` part of the index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.files import open_plain, read_small
from rla_client.contract.layout import ARCHIVE_TESTER, CODE, HYPARAM_FILE_NAME, HYPARAMETER, LOG, RunIndex
from rla_client.contract.parsing import MAX_DIGITS, check_yaml, parse_json
from rla_client.contract.user_messages import hint

if TYPE_CHECKING:
    import yaml

MAX_BACKUP_BYTES = 1 << 20  # print_args writes its lines first
_BACKUP_LINE = re.compile(r"key: (.*?), value: (.*)")
_SIMPLE_LINE = re.compile(r"([A-Za-z_][\w.\-]*): (\S.*)")
# Plain scalars that YAML 1.1, YAML 1.2 and OmegaConf read alike; anything else goes to the YAML loader.
_YAML_INT = re.compile(r"-?(0|[1-9]\d*)")
_YAML_FLOAT = re.compile(r"-?(0|[1-9]\d*)\.\d+(e[+-]\d+)?")
_YAML_EXPONENT = re.compile(r"-?\d+e-?\d+")  # OmegaConf reads 1e-05 as a number, YAML 1.1 does not
_YAML_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*")
_YAML_SPECIAL = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"])
_YAML_CONSTANTS = {"true": True, "false": False, "null": None}


class HyperParams(dict[str, Any]):
    """A dict of hyper-parameters whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        try:
            return self[name]
        except KeyError:
            message = f"no hyper-parameter {name!r}; {hint(name, sorted(self)) or 'there are none'}"
            raise AttributeError(message) from None

    def dotted(self, path: str) -> Any:  # noqa: ANN401
        """The value at `a.b.c`, or under that whole name; keys may have dots themselves.

        Raises:
            KeyError: there is none.
        """
        return _at(self, path)

    def flat(self) -> dict[str, Any]:
        """One level: nested dicts as dotted keys."""
        return dict(_flatten(self, ""))


def _at(values: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401
    if path in values:
        return values[path]
    for place, letter in enumerate(path):
        if letter == "." and isinstance(below := values.get(path[:place]), Mapping):
            with suppress(KeyError):
                return _at(below, path[place + 1 :])
    raise KeyError(path)


def _flatten(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def wrap(value: object) -> Any:  # noqa: ANN401
    """Plain data with every dict as `HyperParams`."""
    if isinstance(value, Mapping):
        return HyperParams({str(key): wrap(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return [wrap(item) for item in value]
    return value


def read_parameter_file(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """`parameter.json` or `parameter.yaml` of an item folder, None when there is neither.

    Raises:
        BrokenFileError: the file is not a JSON or YAML mapping.
    """
    for suffix, parse in (("json", parse_json), ("yaml", _parse_yaml_bytes)):
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


def _parse_yaml_bytes(data: bytes) -> object:
    return parse_yaml(data.decode("utf-8", "replace"))


def parse_yaml(text: str) -> Any:  # noqa: ANN401
    """YAML as OmegaConf writes it.

    Flat files of plain scalars are read here (a full loader takes 10,000 of them to 10 s).

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
        message = f"a number of {len(node.value)} digits"
        raise ValueError(message)
    return int(loader.construct_yaml_int(node))


def read_archive(paths: tuple[str, ...]) -> dict[str, Any] | None:
    """The archive_tester entry as plain data: our JSON, else the original's pickle.

    Keys: hyper_param, hyper_param_record (list of `key=value`), custom_data, record_date, info,
    task_table_name, data_root, and whatever else the entry holds. Passwords are left out.

    Raises:
        BrokenFileError: the file is broken.
        OSError: it cannot be opened.
    """
    for path in sorted(paths):
        if path.endswith(".json"):
            try:
                found = parse_json(read_small(path))
            except BrokenFileError:
                raise
            except ValueError as error:
                raise BrokenFileError(path, f"no valid JSON ({error})") from error
            return found if isinstance(found, dict) else None
    for path in paths:
        if path.endswith(".pkl"):
            return _old_archive(path)
    return None


def _old_archive(path: str) -> dict[str, Any]:
    from rla_client.run.safe_pickle import (
        Placeholder,
        read_pickle,
        to_plain,  # not at the start of every command
    )

    content = read_pickle(path)
    if not isinstance(content, Placeholder):
        raise BrokenFileError(path, "it is not an archived manager of RLA")
    try:
        found = {str(key): to_plain(value) for key, value in content.state.items()}
    except ValueError as error:
        raise BrokenFileError(path, str(error)) from error
    found.setdefault("task_table_name", found.get("task_name"))
    found.setdefault("data_root", found.get("root"))
    remote = (found.get("private_config") or {}).get("REMOTE_SETTING")
    if isinstance(remote, dict):
        remote.pop("password", None)
    return found


def read_hyper_params(data_root: Path, table: str, index: str) -> tuple[HyperParams, list[str]]:
    """Hyper-parameters of a run from the first place that has them, and what was broken on the way."""
    problems: list[str] = []
    for kind in (HYPARAMETER, LOG, CODE):
        try:
            found = read_parameter_file(f"{data_root}/{kind}/{table}/{index}")
        except (DatabaseError, OSError) as error:
            problems.append(f"parameters unreadable: {error}")
            continue
        if found is not None:
            return wrap(found), problems
    base = f"{data_root}/{ARCHIVE_TESTER}/{table}/{index}"
    paths = tuple(path for path in (f"{base}.json", f"{base}.pkl") if os.path.lexists(path))
    try:
        archive = read_archive(paths)
    except (DatabaseError, OSError) as error:
        problems.append(str(error))
        archive = None
    if archive is not None and isinstance(archive.get("hyper_param"), dict):
        return wrap(archive["hyper_param"]), problems
    printed = printed_args(f"{data_root}/{LOG}/{table}/{index}/backup.txt")
    return HyperParams({**dict(tracked(index)), **printed}), problems


def printed_args(path: str) -> dict[str, Any]:
    """The `key: …, value: …` lines that print_args wrote into backup.txt."""
    try:
        with open_plain(path) as file:
            text = file.read(MAX_BACKUP_BYTES).decode("utf-8", "replace")
    except (OSError, BrokenFileError):
        return {}
    return {match[1]: scalar(match[2]) for match in _BACKUP_LINE.finditer(text)}


def tracked(index: str) -> list[tuple[str, Any]]:
    """The tracked hyper-parameters that an index carries, in order, repeats kept."""
    parsed = RunIndex.parse(index)
    if parsed is None:
        return []
    pairs = (part.partition("=") for part in parsed.info.split("&") if "=" in part)
    return [(key, scalar(value)) for key, _, value in pairs]


def scalar(text: str) -> object:
    """Text of a value as the value that `str` made it from, where that is a number, bool or None."""
    if text in {"True", "False", "None"}:
        return {"True": True, "False": False, "None": None}[text]
    if "_" not in text and len(text) <= MAX_DIGITS:
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Names whose values differ; None where a side has not the name."""
    names = dict.fromkeys([*first, *second])
    return {
        name: (first.get(name), second.get(name))
        for name in names
        if (name in first) != (name in second) or first[name] != second[name]
    }
