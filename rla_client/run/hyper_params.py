"""Hyper-parameters as query results give them, and the places of a database that hold them.

`HyperParams` is a dict whose keys are also attributes and dotted paths: `hp["a"]["b"]`,
`hp.a.b`, `hp.dotted("a.b")`.

Where they come from, first found wins: `parameter.json|yaml` under hyperparameter, log, code;
the archive_tester JSON of ours; the archive_tester pickle of the original (never unpickled, see
below); the `key: …, value: …` lines of backup.txt; the `&key=value` part of the index.

The original dumps its whole manager by dill. Unpickling that as it stands would import and call whatever
the file names. In `read_pickle`, `pickle.Unpickler` gets, for every name, an inert class of our own that
only remembers the name, the arguments and the state. No name of the file is ever imported, looked up or
called: the only branches on names are the comparisons in `to_plain`, where dates, numpy numbers and
deques are decoded from their bytes. Files over `MAX_PICKLE_BYTES`, with more than `MAX_OPCODES`, with
more than `MAX_NAMES` or with memo numbers that would only take memory are refused. Shared and cyclic
references cost nothing while reading; `to_plain` cuts them at a depth and a count.
"""

from __future__ import annotations

import ast
import io
import os
import pickle
import pickletools
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.filesystem.plain_files import open_plain, read_small
from rla_client.contract.layout import ARCHIVE_TESTER, CODE, HYPARAM_FILE_NAME, HYPARAMETER, LOG
from rla_client.contract.run_index import RunIndex
from rla_client.contract.text.bounded_parsing import MAX_DIGITS, check_yaml, parse_json
from rla_client.contract.text.spelling import hint

if TYPE_CHECKING:
    import yaml

MAX_BACKUP_BYTES = 1 << 20  # print_args writes its lines first
_BACKUP_LINE = re.compile(r"key: (.*?), value: (.*)")
_TABLE = re.compile(
    r"\|\s*param\w*\s*\|\s*value\s*\|\s*\n\|[\s:-]+\|[\s:-]+\|\s*\n(.*)", re.IGNORECASE | re.DOTALL
)
_TABLE_LINE = re.compile(r"^\|([^|]+)\|(.*)\|$", re.MULTILINE)
_SIMPLE_LINE = re.compile(r"([A-Za-z_][\w.\-]*): (\S.*)")
# Plain scalars that YAML 1.1, YAML 1.2 and OmegaConf read alike; anything else goes to the YAML loader.
_YAML_INT = re.compile(r"-?(0|[1-9]\d*)")
_YAML_FLOAT = re.compile(r"-?(0|[1-9]\d*)\.\d+(e[+-]\d+)?")
_YAML_EXPONENT = re.compile(r"-?\d+e-?\d+")  # OmegaConf reads 1e-05 as a number, YAML 1.1 does not
_YAML_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*")
_YAML_SPECIAL = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"])
_YAML_CONSTANTS = {"true": True, "false": False, "null": None}

MAX_PLAIN_DEPTH = 50
MAX_PLAIN_NODES = 1_000_000
_NUMPY_FORMATS = {
    "f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q",
    "u1": "B", "u2": "H", "u4": "I", "u8": "Q", "b1": "?",
}  # fmt: skip
MAX_PICKLE_BYTES = 256 << 20  # the original puts custom data (arrays, deques) into this file
MAX_OPCODES = 20_000_000  # at about 1 µs each
MAX_NAMES = 10_000  # each is a class; the original's manager names a few dozen
_MEMO_SLACK = 256  # memo numbers are given one after the other
_MEMO_OPCODES = frozenset(["PUT", "BINPUT", "LONG_BINPUT"])


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
        raise ValueError(f"a number of {len(node.value)} digits")
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
    """Names whose values differ; None where a side has not the name."""
    names = dict.fromkeys([*first, *second])
    return {
        name: (first.get(name), second.get(name))
        for name in names
        if (name in first) != (name in second) or first[name] != second[name]
    }


class _Named(type):
    """Makes the classes of placeholders tell which name they stand for."""

    name = ""

    def __repr__(cls) -> str:
        return f"<{cls.name}, not loaded>"


class Placeholder(metaclass=_Named):
    """What stands for an object that the pickle would make; a subclass stands for each name.

    Attributes:
        name: `module.attribute` as the file spells it; only text.
        args: arguments that the call would have got.
        state: attributes of the object, by name; other kinds of state under `""`.
        items: elements appended or set afterwards.
    """

    name: str
    args: tuple[Any, ...]
    state: dict[Any, Any]
    items: list[Any]

    def __new__(cls, *args: object, **_keywords: object) -> Placeholder:  # noqa: PYI034 - no Self in 3.10
        """Keep the arguments; `__init__` is not called for all opcodes."""
        made = super().__new__(cls)
        made.args, made.state, made.items = args, {}, []
        return made

    def __init__(self, *args: object, **keywords: object) -> None:
        """Nothing: `__new__` has kept what there is."""

    def __setstate__(self, state: object) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.state.update(part)
            elif part is not None:
                self.state[""] = state

    def __setitem__(self, key: object, value: object) -> None:
        self.items.append((key, value))

    def append(self, value: object) -> None:
        """As the opcodes call it."""
        self.items.append(value)

    add = append

    def extend(self, values: Iterable[object]) -> None:
        """As the opcodes call it."""
        self.items.extend(values)

    def __repr__(self) -> str:
        return f"<{self.name} object, not loaded>"


class _Reader(pickle.Unpickler):
    """Knows no name."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), fix_imports=False, encoding="latin-1")  # text as Python 2 wrote it
        self._classes: dict[str, type[Placeholder]] = {}

    def find_class(self, module: str, name: str) -> type[Placeholder]:
        full = f"{module}.{name}"
        if full not in self._classes:
            if len(self._classes) == MAX_NAMES:
                raise ValueError(f"more than {MAX_NAMES} names")
            self._classes[full] = _Named("Placeholder", (Placeholder,), {"name": full})  # type: ignore[assignment]
        return self._classes[full]

    def persistent_load(self, identity: object) -> Placeholder:
        return self.find_class("pickle", "persistent_id")(identity)


def read_pickle(path: str | os.PathLike[str]) -> Any:  # noqa: ANN401 - any pickled value
    """Read one pickle file into containers, numbers, text and placeholders.

    Raises:
        BrokenFileError: it is not a whole pickle, or too large.
        OSError: it cannot be opened.
    """
    with open_plain(path) as file:
        data = file.read(MAX_PICKLE_BYTES + 1)
    try:
        return parse_pickle(data)
    except ValueError as error:
        raise BrokenFileError(os.fspath(path), f"no whole pickle ({error})") from error


def parse_pickle(data: bytes) -> object:
    """The value of a pickle; see `read_pickle`.

    Raises:
        ValueError: the bytes are no whole pickle, or over a bound.
    """
    if len(data) > MAX_PICKLE_BYTES:
        raise ValueError(f"larger than {MAX_PICKLE_BYTES >> 20} MiB")
    try:
        _check_opcodes(data)
        return _Reader(data).load()
    except ValueError:
        raise
    except (
        pickle.UnpicklingError,
        EOFError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        MemoryError,
        struct.error,
        RecursionError,
    ) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _check_opcodes(data: bytes) -> None:
    """Refuse what would take much more memory than its bytes, before anything is built."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if count > MAX_OPCODES:
            raise ValueError(f"more than {MAX_OPCODES} opcodes")
        if opcode.name in _MEMO_OPCODES and int(str(argument)) > count + _MEMO_SLACK:
            raise ValueError(f"memo number {argument}")


def _as_bytes(raw: object) -> Any:  # noqa: ANN401
    """Bytes as Python 2 wrote them (text), or as Python 3 does below protocol 3 (`_codecs.encode`)."""
    if isinstance(raw, Placeholder) and raw.name in {"_codecs.encode", "__builtin__.bytes"}:
        raw = raw.args[0] if raw.args else ""
    return raw.encode("latin-1") if isinstance(raw, str) else raw


def _date(made: Placeholder) -> datetime:
    raw = _as_bytes(made.args[0])
    year, month, day, hour, minute, second = struct.unpack(">HBBBBB", raw[:7])
    return datetime(year, month & 0x7F, day, hour, minute, second, int.from_bytes(raw[7:10], "big"))  # noqa: DTZ001


def _numpy_format(dtype: Placeholder) -> str:
    """Of one number, for `struct`."""
    order = ">" if dtype.state.get("", (0, "<"))[1] == ">" else "<"
    return order + _NUMPY_FORMATS[dtype.args[0].lstrip("<>=|")]


def _numpy_scalar(made: Placeholder) -> object:
    dtype, raw = made.args
    return struct.unpack(_numpy_format(dtype), _as_bytes(raw))[0]


def _numpy_array(made: Placeholder) -> object:
    """Nested lists of an array's numbers, from the state (version, shape, dtype, fortran, bytes)."""
    _, shape, dtype, fortran, raw = made.state[""]
    numbers = struct.iter_unpack(_numpy_format(dtype), _as_bytes(raw))
    values: list[Any] = [number for (number,) in numbers]
    sizes = shape[:0:-1] if not fortran else shape[:-1]
    for size in sizes:
        values = [values[start : start + size] for start in range(0, len(values), size)]
    if fortran and len(shape) > 1:
        return f"<array of shape {tuple(shape)} in Fortran order>"
    return values if shape else values[0]


_PLAIN: dict[str, Callable[[Placeholder], Any]] = {
    "datetime.datetime": _date,
    "numpy.core.multiarray.scalar": _numpy_scalar,
    "numpy._core.multiarray.scalar": _numpy_scalar,
    "numpy.core.multiarray._reconstruct": _numpy_array,
    "numpy._core.multiarray._reconstruct": _numpy_array,
    "collections.deque": lambda made: list(made.items),
    "collections.OrderedDict": lambda made: dict(made.items),
    "collections.defaultdict": lambda made: dict(made.items),
}


def to_plain(value: object) -> Any:  # noqa: ANN401
    """Turn what `read_pickle` gave into JSON-like data; unknown objects become their description.

    Raises:
        ValueError: there are more than `MAX_PLAIN_NODES` values.
    """
    return _plain(value, MAX_PLAIN_DEPTH, [MAX_PLAIN_NODES])


def _plain(value: object, depth: int, budget: list[int]) -> object:  # noqa: PLR0911 - one case a line
    budget[0] -= 1
    if budget[0] < 0:
        raise ValueError(f"more than {MAX_PLAIN_NODES} values")
    if isinstance(value, bool | int | float | str | datetime | None):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, Placeholder):
        known = _PLAIN.get(value.name)
        if known is None:
            return repr(value)
        try:
            return _plain(known(value), depth - 1, budget)
        except (KeyError, IndexError, TypeError, AttributeError, struct.error, OverflowError):
            return repr(value)
    if isinstance(value, dict):
        return {str(key): _plain(item, depth - 1, budget) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth - 1, budget) for item in value]
    if isinstance(value, type):
        return repr(value)  # a bare name
    return f"<{len(value)} bytes>" if isinstance(value, bytes | bytearray) else f"<{type(value).__name__}>"
