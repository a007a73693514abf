"""Hyper-parameters in query results.

`HyperParams` is a dict whose keys are also attributes and dotted paths: `hp["a"]["b"]`, `hp.a.b`,
`hp.dotted("a.b")`. They are read from the first source that exists: `parameter.json|yaml` under
hyperparameter, log, code; the archive_tester entry; the `key: …, value: …` lines of backup.txt; the
`&key=value` part of the index.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.layout import ARCHIVE_TESTER, CODE, HYPARAMETER, LOG
from rla_client.contract.run_index import RunIndex
from rla_client.contract.text.bounded_parsing import MAX_DIGITS
from rla_client.contract.text.spelling import hint
from rla_client.run.parameters.parameter_reader import read_parameter_file
from rla_client.run.state.archive_reader import read_archive

MAX_BACKUP_BYTES = 1 << 20  # print_args writes its lines first
_BACKUP_LINE = re.compile(r"key: (.*?), value: (.*)")
_TABLE = re.compile(
    r"\|\s*param\w*\s*\|\s*value\s*\|\s*\n\|[\s:-]+\|[\s:-]+\|\s*\n(.*)", re.IGNORECASE | re.DOTALL
)
_TABLE_LINE = re.compile(r"^\|([^|]+)\|(.*)\|$", re.MULTILINE)


class HyperParams(dict[str, Any]):
    """A dict of hyper-parameters whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"no hyper-parameter {name!r}; {hint(name, sorted(self)) or 'there are none'}"
            ) from None

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


def read_hyper_params(data_root: Path, table: str, index: str) -> tuple[HyperParams, list[str]]:
    """Hyper-parameters of a run from the first source that has them, with the broken sources before it."""
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
    """The tracked hyper-parameters in an index, in order, duplicates included."""
    parsed = RunIndex.parse(index)
    if parsed is None:
        return []
    pairs = (part.partition("=") for part in parsed.info.split("&") if "=" in part)
    return [(key, scalar(value)) for key, _, value in pairs]


def scalar(text: str) -> object:
    """Parse the text of a number, bool or None; any other text unchanged."""
    if text in {"True", "False", "None"}:
        return {"True": True, "False": False, "None": None}[text]
    if "_" not in text and len(text) <= MAX_DIGITS:
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def parameters_of_table(text: str) -> Mapping[str, Any]:
    """Names and values of a Markdown table `|param|value|`; nothing of any other text."""
    table = _TABLE.match(text.strip())
    return (
        {}
        if table is None
        else {name.strip(): _literal(value) for name, value in _TABLE_LINE.findall(table[1])}
    )


def _literal(text: str) -> Any:  # noqa: ANN401
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Names whose values differ; None where a side lacks the name."""
    names = dict.fromkeys([*first, *second])
    return {
        name: (first.get(name), second.get(name))
        for name in names
        if (name in first) != (name in second) or first[name] != second[name]
    }
