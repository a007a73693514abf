"""What a run keeps to be loaded and resumed: hyper-parameters, custom data, archive, resume state.

Parameters. `parameter.yaml` (or `.json`) and the run's index keep what the run began with. It is written at
once, atomically, and made durable by the agent, which gets its content too. Each change at a resume is a file
of its own, `parameter.resumed-N.json`, in the item's log and hyperparameter folders::

    {"time_step": 100, "time": 1763712000.0, "changed": {"lr": [0.1, 0.5]}, "hyper_param": {...}}

`changed` holds the former and the new value of each dotted name, null where there was or is none;
`hyper_param` all of them as from now on. What is compared with is the newest of these files.

Custom data. `split_arrays` turns a value into what JSON and msgpack can say, arrays aside; `join_arrays` is
its inverse. None, numbers, text, lists and dicts with text as keys stand as they are. The others are
dicts with one of the marks below, so tuples, sets, bytes, deques, dicts with other keys, and objects
of registered types come back as they were::

    {"__rla_array__": key in the .pt, "kind": …, "dtype": …}     {"__rla_tuple__": […]}
    {"__rla_deque__": maxlen, "items": […]}                      {"__rla_set__": […]}
    {"__rla_items__": [[key, value], …]}                         {"__rla_frozenset__": […]}
    {"__rla_object__": registered name, "plain": …}              {"__rla_bytes__": base64}
    {"__rla_pickled__": key in the .pt} or, without numpy, {"__rla_pickled__": "", "base64": …}

Reading never imports or calls what a file names: a registered pair of functions is the reader's own,
and without one, or where it fails, an object is its plain data. Any other object is pickled, by itself, and
comes back as a `Pickled`: the rule for checkpoints says whether it may be opened (`open_own`), and `saved_by`
which run wrote it. What was not opened is not kept once more: it would count as the next run's own. What
cannot be pickled is left out with one warning, and None stands in its place: no checkpoint is lost for it.

The archive (`archive_tester`) is what RLA pickled of its manager, as plain data. `<index>.json` holds
hyper-parameters, tracked keys, custom data, dates and folders. Arrays and tensors among the custom data
lie in `<index>.pt` (torch.load(weights_only=True) reads it), and the JSON names them. Without tensors
among them neither writing nor reading needs torch.

The resume state is what exact resume needs beside the model: clock, random generators, moving averages,
custom data. It is taken at `save_checkpoint` and lies as plain msgpack in the checkpoint item under
`.resume/<name>_<time-step>.state`. The agent adds `.marks.json`: how long each output was at that moment.
Arrays and pickles of more than MAX_STATE_BYTES lie beside it in `<name>_<time-step>.<order>.arrays`, a `.pt`
that the archive's is a link to: of the same moment as the model, whatever the archive keeps later. `order` is
the checkpoint's stamp's, and in the state, too: a save of the same time-step is told from it.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import io
import json
import os
import pickle
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from rla_client.contract.errors import ArgumentError, BrokenFileError, ShardedContentError
from rla_client.contract.files import open_plain, read_small, replacing, write_atomic
from rla_client.contract.layout import (
    CHECKPOINT,
    CODE,
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
    MAX_STATE_BYTES,
    RESUME_FOLDER,
    arrays_name,
)
from rla_client.contract.parsing import parse_json
from rla_client.contract.protocol import pack
from rla_client.run.run import Run, reason_text, warn
from rla_client.stream.values import MAX_INT_BITS, plain_hyper_param, to_plain

if TYPE_CHECKING:
    from rla_client.code.secrets import Secrets
    from rla_client.run.item import Item

PARAMETER_KINDS = (CODE, LOG, HYPARAMETER)
CHANGE_KINDS = (LOG, HYPARAMETER)
MAX_TOLD = 10  # changes in the warning; the file has all
MAX_VALUE_CHARS = 80
_CHANGE_NAME = re.compile(rf"{HYPARAM_FILE_NAME}\.resumed-([0-9]{{1,9}})\.json")
_LIKE_A_NUMBER = re.compile(r"^[-+]?(\d[\d_]*)?\.?\d*[eE][-+]?\d+$")
ARCHIVE_FORMAT = STATE_FORMAT = 1
ARRAY_KEY = "__rla_array__"
DEQUE_KEY = "__rla_deque__"
TUPLE_KEY = "__rla_tuple__"
SET_KEY = "__rla_set__"
FROZEN_KEY = "__rla_frozenset__"  # apart from sets: only this one can be a key
BYTES_KEY = "__rla_bytes__"
ITEMS_KEY = "__rla_items__"
OBJECT_KEY = "__rla_object__"
PICKLED_KEY = "__rla_pickled__"
INT_KEY = "__rla_int__"  # of more digits than Python reads, in hexadecimal
MARK = "__rla_"  # a user's key that begins so is kept by ITEMS_KEY
MAX_DEPTH = 100  # what contains itself ends here
MAX_KNOWN = 1000  # warnings that are remembered, of all runs of a process
MANY_PICKLED_BYTES = 64 << 20
PICKLE_PROTOCOL = 4  # of objects: any Python that this runs on reads it
_PLAIN = (type(None), bool, int, float, str)
_MARKED: dict[type, str] = {tuple: TUPLE_KEY, set: SET_KEY, frozenset: FROZEN_KEY}


# -- hyper-parameters -----------------------------------------------------------------------------


def parameter_file(hyper_param: Mapping[str, Any], item: Item | None = None) -> tuple[str, bytes]:
    """Name and content of the parameter file: YAML when all values are plain data, else JSON.

    Where `item` has one, the new one is of its kind.

    JSON has sorted keys and indent 4, as RLA's; numpy and torch scalars are numbers in it, enums,
    paths and dataclasses plain data, other objects their repr.
    """
    there = {
        kind: item is not None
        and os.path.exists(os.path.join(item.folder(LOG), f"{HYPARAM_FILE_NAME}.{kind}"))
        for kind in ("json", "yaml")
    }
    values: Any = plain_hyper_param(dict(hyper_param)) if there["yaml"] else hyper_param
    if all(isinstance(key, str) for key in values) and is_plain(values) and not there["json"]:
        import yaml  # noqa: PLC0415 - not at import of the package

        class Dumper(yaml.SafeDumper):
            """Quotes text such as 1e5, which OmegaConf and other readers of YAML 1.2 take for a number."""

        Dumper.add_representer(
            str,
            lambda dumper, text: dumper.represent_scalar(
                "tag:yaml.org,2002:str",
                text.encode("utf-8", "backslashreplace").decode(),  # readers refuse lone surrogates
                style="'" if _LIKE_A_NUMBER.match(text) else None,
            ),
        )
        text = yaml.dump(
            _lists(values), Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
        )
        return f"{HYPARAM_FILE_NAME}.yaml", text.encode("utf-8", "backslashreplace")
    content = json.dumps(plain_hyper_param(dict(hyper_param)), sort_keys=True, indent=4)
    return f"{HYPARAM_FILE_NAME}.json", content.encode()


def is_plain(value: object, depth: int = 50) -> bool:
    """Whether YAML can hold a value as it is: None, bool, int, float, text, lists and dicts of these."""
    if value is None or type(value) in {bool, int, float, str}:
        return True
    if depth == 0:
        return False
    if type(value) in {list, tuple}:
        return all(is_plain(entry, depth - 1) for entry in value)  # type: ignore[attr-defined]
    if isinstance(value, Mapping) and type(value) is dict:
        return all(isinstance(k, (str, int)) and is_plain(v, depth - 1) for k, v in value.items())
    return False


def _lists(value: object) -> object:
    if isinstance(value, Mapping):
        return {to_plain(key) if isinstance(key, int) else key: _lists(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_lists(entry) for entry in value]
    return to_plain(value) if isinstance(value, int) else value


def write_parameters(item: Item, name: str, content: bytes) -> None:
    """Put the parameter file into its folders; durable once the agent has seen it."""
    for kind in PARAMETER_KINDS:
        write_atomic(os.path.join(item.folder(kind), name), content, durable=False)


def changed_parameters(
    item: Item, hyper_param: Mapping[str, Any], secrets: Secrets
) -> dict[str, tuple[Any, Any]]:
    """Names whose value is another one than the run had last: name → (former, new).

    Secrets are hidden; a change from one to another is none.
    """
    former = last_parameters(item)
    if former is None or not hyper_param:
        return {}
    return parameter_changes(former, hyper_param, secrets)


def parameter_changes(
    former: Mapping[str, Any], hyper_param: Mapping[str, Any], secrets: Secrets
) -> dict[str, tuple[Any, Any]]:
    """Names whose values differ: name → (former, new), secrets hidden."""
    from rla_client.code.secrets import restored  # noqa: PLC0415 - not at import of the package
    from rla_client.run.hyper_params import differences  # noqa: PLC0415

    now = as_stored(secrets.parameters(hyper_param))
    then = secrets.parameters(former)  # an older release hid nothing
    return differences(_flat(restored(then, now, [])), _flat(now))


def last_parameters(item: Item) -> dict[str, Any] | None:
    """The hyper-parameters that a run had last; None where that cannot be read."""
    from rla_client.run.hyper_params import read_parameter_file  # noqa: PLC0415 - not at import of the package

    for path in reversed(change_files(Path(item.folder(LOG)))):
        try:
            found = parse_json(read_small(path))["hyper_param"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if isinstance(found, dict):
            return found
    for kind in (HYPARAMETER, LOG):
        try:
            first = read_parameter_file(item.folder(kind))
        except (BrokenFileError, OSError):
            continue
        if first is not None:
            return first
    return None


def as_stored(hyper_param: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as they come back from a parameter file."""
    from rla_client.run.hyper_params import parse_yaml  # noqa: PLC0415 - not at import of the package

    name, content = parameter_file(hyper_param)
    text = content.decode()
    found = json.loads(text) if name.endswith(".json") else parse_yaml(text)
    return found if isinstance(found, dict) else {}


def named_changes(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """What was changed to what."""
    told = [f"{name} was {_short(old)}, is now {_short(new)}" for name, (old, new) in changed.items()]
    more = f" and {len(told) - MAX_TOLD} more" if len(told) > MAX_TOLD else ""
    return f"{'; '.join(told[:MAX_TOLD])}{more}"


def tell_changes(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """The warning."""
    return (
        f"this run is resumed with other hyper-parameters: {named_changes(changed)}. It keeps its name and "
        f"first parameters; {HYPARAM_FILE_NAME}.resumed-N.json has the new ones. To make it a run of its "
        "own, give it another run_id"
    )


def keep_changes(
    item: Item,
    hyper_param: Mapping[str, Any],
    changed: Mapping[str, tuple[Any, Any]],
    time_step: float | None,
) -> tuple[str, bytes]:
    """Write the next `parameter.resumed-N.json` into the item; its name and content.

    Raises:
        OSError: it cannot be written.
    """
    earlier = change_files(Path(item.folder(LOG)))
    name = f"{HYPARAM_FILE_NAME}.resumed-{_number(earlier[-1]) + 1 if earlier else 1}.json"
    record = {
        "time_step": time_step,
        "time": time.time(),
        "changed": {key: list(values) for key, values in changed.items()},
        "hyper_param": as_stored(hyper_param),
    }
    content = json.dumps(record, indent=4, default=str).encode("utf-8", "backslashreplace")
    for kind in CHANGE_KINDS:
        write_atomic(os.path.join(item.folder(kind), name), content, durable=False)
    return name, content


def change_files(folder: Path) -> list[Path]:
    """The files of earlier changes, in order."""
    found = folder.glob(f"{HYPARAM_FILE_NAME}.resumed-*.json")
    return sorted((path for path in found if _number(path)), key=_number)


def _number(path: Path) -> int:
    """N of `parameter.resumed-N.json`; 0 of another file."""
    match = _CHANGE_NAME.fullmatch(path.name)
    return 0 if match is None else int(match[1])


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    from rla_client.run.hyper_params import wrap  # noqa: PLC0415 - not at import of the package

    flat: dict[str, Any] = wrap(values).flat()
    return {name: repr(value) if value != value else value for name, value in flat.items()}  # noqa: PLR0124 - NaN


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"


# -- custom data ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Registered:
    name: str
    to_plain: Callable[[Any], object]
    from_plain: Callable[[Any], object]


_types: dict[type, _Registered] = {}


def register_custom_type(
    kind: type, to_plain: Callable[[Any], object], from_plain: Callable[[Any], object], name: str = ""
) -> None:
    """Let custom data hold objects of `kind`.

    Args:
        kind: the type itself; types derived from it are registered by themselves.
        to_plain: makes plain data (arrays may be in it) of an object.
        from_plain: makes an object of that plain data again.
        name: what files call the type; default: its qualified name.

    Raises:
        ArgumentError: another type has that name, so that a file could not say which is meant.
    """
    called = name or kind.__qualname__
    former = [known for known, entry in _types.items() if entry.name == called and known is not kind]
    for known in former:
        if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
            raise ArgumentError(
                f"{known.__module__}.{known.__qualname__} is registered as {called!r}; "
                f"give {kind.__module__}.{kind.__qualname__} another name"
            )
        del _types[known]  # the same class, made again: a notebook's cell, a reloaded module
    _types[kind] = _Registered(called, to_plain, from_plain)


class Parts(dict[str, Any]):
    """Arrays by path; what cannot be kept is left out, and why.

    Attributes:
        left_out: path → why.
        pickled: bytes of all pickles.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left_out: dict[str, str] = {}
        self.pickled = 0


class Pickled:
    """An object of custom data as its file holds it.

    Attributes:
        content: the pickle.
        problem: why it was not opened.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.problem = "nobody vouches for its file"

    def __repr__(self) -> str:
        return f"<an object that was not loaded: {self.problem}>"


class _Whole:
    """A value that contains itself: a pickle can say that, plain data cannot."""

    def __init__(self, value: object) -> None:
        self.value = value


def split_custom(custom_data: Mapping[str, Any], run: str = "") -> tuple[Any, Parts]:
    """Plain data and arrays of all custom data; what cannot be kept is left out.

    There is one warning for each name of a run, whatever is left out of it.

    Raises:
        ShardedContentError: of a tensor in it this rank holds a part.
    """
    parts = Parts()
    entries: dict[str, object] = {}
    for key, value in dict(custom_data).items():
        known = len(parts.left_out)
        entries[key] = _split_one(value, parts, f"/{key}")
        path, why = next(islice(parts.left_out.items(), known, None), ("", ""))
        if why and _first(run, key):
            warn(f"custom data {path[1:]!r} {why}: it is left out of the files; what else there is is kept")
    if parts.pickled > MANY_PICKLED_BYTES and _first(run, None):
        warn(
            f"objects among the custom data take {parts.pickled >> 20} MiB, and each save_checkpoint waits "
            "until they are pickled; its content, which is copied and written aside, is the cheaper place"
        )
    return _with_keys(entries, parts, "", 0), parts


def _split_one(value: object, parts: Parts, path: str) -> object:
    """What `split_arrays` makes of one entry; None, and a word in `left_out`, where it cannot."""
    sizes = len(parts), len(parts.left_out), parts.pickled
    error: Exception | None = None
    for tried in (value, _Whole(value)):
        try:
            return split_arrays(tried, parts, path, 1)
        except ShardedContentError:
            raise
        except Exception as caught:  # noqa: BLE001 - the user's to_plain or mapping: no checkpoint is lost
            error = caught
        while len(parts) > sizes[0]:
            parts.popitem()
        while len(parts.left_out) > sizes[1]:
            parts.left_out.popitem()
        parts.pickled = sizes[2]
        if not isinstance(error, ArgumentError):
            break
    assert error is not None  # or there would be a result
    parts.left_out[path] = f"cannot be taken apart ({reason_text(error)})"
    return None


def _first(run: str, name: str | None) -> bool:
    """Whether that is to be told of a run for the first time."""
    if (run, name) in _told:
        return False
    while len(_told) >= MAX_KNOWN:
        del _told[next(iter(_told))]
    _told[run, name] = True
    return True


_told: dict[tuple[str, str | None], bool] = {}  # runs and names of custom data that were warned of


def split_arrays(value: object, arrays: dict[str, Any], path: str, depth: int = 0) -> object:
    """Plain data of a custom value; arrays, tensors and pickles go into `arrays` under their path.

    Raises:
        ArgumentError: it holds an object that cannot be pickled, and `arrays` is no `Parts`; or itself.
        ShardedContentError: of a tensor in it this rank holds a part.
    """
    if type(value) in _PLAIN:
        return {INT_KEY: hex(value)} if type(value) is int and value.bit_length() > MAX_INT_BITS else value
    if depth > MAX_DEPTH:
        raise ArgumentError(
            f"custom data {path[:100]!r} is nested more than {MAX_DEPTH} deep, or contains itself"
        )
    registered = _types.get(type(value))
    if registered is not None:
        plain = split_arrays(registered.to_plain(value), arrays, path, depth + 1)
        return {OBJECT_KEY: registered.name, "plain": plain}
    if isinstance(value, _PLAIN):
        return value
    return _split_container(value, arrays, path, depth)


def _split_container(value: object, arrays: dict[str, Any], path: str, depth: int) -> object:
    if isinstance(value, Mapping):
        return _split_mapping(value, arrays, path, depth)
    if isinstance(value, (bytes, bytearray)):
        return {BYTES_KEY: base64.b64encode(value).decode()}
    if not isinstance(value, (deque, list, tuple, set, frozenset)):
        return _split_array(value, arrays, path)
    entries = [split_arrays(entry, arrays, f"{path}/{i}", depth + 1) for i, entry in enumerate(value)]
    if isinstance(value, deque):
        return {DEQUE_KEY: value.maxlen, "items": entries}
    mark = next((mark for kind, mark in _MARKED.items() if isinstance(value, kind)), None)
    return entries if mark is None else {mark: entries}


def _split_mapping(value: Mapping[Any, Any], arrays: dict[str, Any], path: str, depth: int) -> object:
    entries = {key: split_arrays(entry, arrays, f"{path}/{key}", depth + 1) for key, entry in value.items()}
    return _with_keys(entries, arrays, path, depth)


def _with_keys(entries: dict[Any, object], arrays: dict[str, Any], path: str, depth: int) -> object:
    if all(isinstance(key, str) and not key.startswith(MARK) for key in entries):
        return entries
    keys = [split_arrays(key, arrays, path, depth + 1) for key in entries]
    return {ITEMS_KEY: [[key, entry] for key, entry in zip(keys, entries.values(), strict=True)]}


def _split_array(value: Any, arrays: dict[str, Any], path: str) -> object:  # noqa: ANN401
    kind = array_kind(value)
    if kind == "tensorflow":
        value, kind = value.numpy(), "numpy"
    if kind == "scalar":
        return value.item()
    if kind is None:
        return _split_object(value, arrays, path)
    if kind == "torch":
        from rla_client.checkpoint.shards import refuse_shard  # noqa: PLC0415 - not at import of the package

        refuse_shard(value)
        try:
            value = value.detach().cpu()
        except Exception as error:  # noqa: BLE001 - torch's, of a tensor without data: on meta, or not initialized
            why = f"is a tensor without data ({type(error).__name__}: {error})"
            _leave_out(arrays, path, why, error)
            return None
    path = _free(path, arrays)
    arrays[path] = value
    plain = {ARRAY_KEY: path, "kind": kind}
    return plain if kind == "torch" else plain | {"dtype": value.dtype.name}


def _free(path: str, arrays: Mapping[str, Any]) -> str:
    while path in arrays:  # keys may hold slashes
        path += "'"
    return path


def _leave_out(arrays: dict[str, Any], path: str, why: str, error: Exception) -> None:
    if not isinstance(arrays, Parts):
        raise ArgumentError(f"custom data {path!r} {why}") from error
    arrays.left_out[path] = why


def _split_object(value: object, arrays: dict[str, Any], path: str) -> object:
    try:
        content = _pickled(value.value if isinstance(value, _Whole) else value)
    except ArgumentError as error:
        _leave_out(arrays, path, str(error), error)
        return None
    if isinstance(arrays, Parts):
        arrays.pickled += len(content)
    try:
        import numpy as np  # noqa: PLC0415 - not at import of the package
    except ImportError:
        return {PICKLED_KEY: "", "base64": base64.b64encode(content).decode()}
    path = _free(path, arrays)
    arrays[path] = np.frombuffer(bytearray(content), np.uint8)
    return {PICKLED_KEY: path}


def _pickled(value: object) -> bytes:
    """An object as bytes: by pickle, else by cloudpickle, which takes functions without a name too.

    Raises:
        ArgumentError: neither takes it.
    """
    if isinstance(value, Pickled):
        raise ArgumentError(f"was not loaded ({value.problem}): get_custom_data(key, trust=True) loads it")
    try:
        return pickle.dumps(value, PICKLE_PROTOCOL)
    except Exception:  # noqa: BLE001 - the user's class; see below
        try:
            import cloudpickle  # noqa: PLC0415 - rarely needed

            content: bytes = cloudpickle.dumps(value, PICKLE_PROTOCOL)
        except Exception as error:
            raise ArgumentError(
                f"is a {type(value).__name__}, which cannot be pickled ({reason_text(error)})"
            ) from error
        return content


def array_kind(value: object) -> str | None:
    """`numpy`, `torch`, `tensorflow` or `scalar` (a numpy one), None for anything else."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(value, (tensorflow.Tensor, tensorflow.Variable)):
        return "tensorflow"
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biuf":
        return "scalar"
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc":
        return "numpy"
    return None


def join_arrays(value: object, arrays: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The inverse of `split_arrays`; arrays that are missing become None."""
    if isinstance(value, list):
        return [join_arrays(entry, arrays) for entry in value]
    if not isinstance(value, dict):
        return value
    for mark, join in _JOINS.items():
        if mark in value:
            try:
                return join(value, arrays)
            except (KeyError, TypeError, ValueError, binascii.Error):
                return None  # not written by us
    return {key: join_arrays(entry, arrays) for key, entry in value.items()}


def _join_array(value: dict[str, Any], arrays: Mapping[str, Any]) -> object:
    found = arrays.get(value[ARRAY_KEY])
    if value.get("kind") != "numpy" or found is None:
        return found
    array = found.numpy() if hasattr(found, "detach") else found
    dtype = str(value.get("dtype", array.dtype.name))
    signed = dtype in {"uint16", "uint32", "uint64"} and dtype != array.dtype.name
    return array.view(dtype) if signed else array  # other types that no file holds stay what they became


def _join_pickled(value: dict[str, Any], arrays: Mapping[str, Any]) -> object:
    if "base64" in value:
        return Pickled(base64.b64decode(value["base64"], validate=True))
    found = arrays.get(value[PICKLED_KEY])
    if found is None:
        return None
    return Pickled((found.numpy() if hasattr(found, "detach") else found).tobytes())


def open_own(value: Any, problem: str | None, depth: int = MAX_DEPTH) -> Any:  # noqa: ANN401
    """Custom data with its pickles opened; where there is a `problem`, they stay as they are and know it."""
    if isinstance(value, Pickled):
        if problem is None:
            try:
                return pickle.loads(value.content)  # noqa: S301 - by the rule for checkpoints
            except Exception as error:  # noqa: BLE001 - the user's class may be gone, or refuse
                problem = reason_text(error)
        value.problem = problem
        return value
    if depth and isinstance(value, dict):
        return _open_dict(value, problem, depth)
    if depth and isinstance(value, (set, frozenset)):
        return _remade(value, lambda: type(value)(open_own(entry, problem, depth - 1) for entry in value))
    if depth and isinstance(value, (list, deque)):
        for place, entry in enumerate(value):
            value[place] = open_own(entry, problem, depth - 1)
    elif depth and type(value) is tuple:
        return tuple(open_own(entry, problem, depth - 1) for entry in value)
    return value


def _open_dict(value: dict[Any, Any], problem: str | None, depth: int) -> dict[Any, Any]:
    for key, entry in value.items():
        value[key] = open_own(entry, problem, depth - 1)
    if all(type(key) in _PLAIN for key in value):
        return value
    opened: dict[Any, Any] = _remade(
        value, lambda: {open_own(key, problem, depth - 1): entry for key, entry in value.items()}
    )
    return opened


def _remade(value: Any, make: Callable[[], Any]) -> Any:  # noqa: ANN401
    """What `make` gives, which hashes objects of the user's; the value as it is where they refuse that."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - the user's class
        for entry in value:
            open_own(entry, reason_text(error))
        return value


def unopened(value: object, depth: int = MAX_DEPTH) -> Pickled | None:
    """A pickle in custom data, as it was read, that was not opened; None without one."""
    if isinstance(value, Pickled):
        return value
    entries: Iterable[object] = ()
    if isinstance(value, dict):
        entries = (*value, *value.values())
    elif isinstance(value, (list, deque, tuple, set, frozenset)):
        entries = value
    found = (unopened(entry, depth - 1) for entry in entries) if depth else iter(())
    return next((one for one in found if one is not None), None)


def _join_object(value: dict[str, Any], arrays: Mapping[str, Any]) -> object:
    plain = join_arrays(value["plain"], arrays)
    known = [entry for entry in _types.values() if entry.name == value[OBJECT_KEY]]
    if not known:
        return plain
    try:
        return known[-1].from_plain(plain)
    except Exception as error:  # noqa: BLE001 - the user's function; nothing it was to read may be lost
        import logging  # noqa: PLC0415 - not at import of the package

        logging.getLogger("rla_client").warning(
            "custom data of type %s stays plain data, its from_plain failed: %s",
            known[-1].name, reason_text(error),
        )  # fmt: skip
        return plain


_JOINS: dict[str, Callable[[dict[str, Any], Mapping[str, Any]], Any]] = {
    ARRAY_KEY: _join_array,
    DEQUE_KEY: lambda value, arrays: deque(join_arrays(value["items"], arrays), maxlen=value[DEQUE_KEY]),
    TUPLE_KEY: lambda value, arrays: tuple(join_arrays(value[TUPLE_KEY], arrays)),
    SET_KEY: lambda value, arrays: set(join_arrays(value[SET_KEY], arrays)),
    FROZEN_KEY: lambda value, arrays: frozenset(join_arrays(value[FROZEN_KEY], arrays)),
    INT_KEY: lambda value, _: int(value[INT_KEY], 16),
    BYTES_KEY: lambda value, _: base64.b64decode(value[BYTES_KEY], validate=True),
    ITEMS_KEY: lambda value, arrays: {
        join_arrays(key, arrays): join_arrays(entry, arrays) for key, entry in value[ITEMS_KEY]
    },
    OBJECT_KEY: _join_object,
    PICKLED_KEY: _join_pickled,
}


# -- the archive ----------------------------------------------------------------------------------


def encode_archive(content: Mapping[str, Any], plain: object) -> bytes:
    """JSON of the archive, with the plain data of `split_custom`."""
    return json.dumps({"format": ARCHIVE_FORMAT, **content, "custom_data": plain}, indent=1).encode()


def pack_arrays(arrays: Mapping[str, Any]) -> bytes:
    """The `.pt` of arrays and tensors, empty of none; without tensors torch is not needed."""
    if not arrays:
        return b""
    from rla_client.checkpoint.files import encode_arrays, normal  # noqa: PLC0415 - imports numpy

    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(value, torch.Tensor) for value in arrays.values()):
        return encode_arrays({key: normal(value) for key, value in arrays.items()})
    tensors = {
        key: (value if isinstance(value, torch.Tensor) else torch.as_tensor(normal(value))).detach().cpu()
        for key, value in arrays.items()
    }
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return buffer.getvalue()


def write_archive(path: str, text: bytes, tensors: bytes, written: Path | None = None) -> None:
    """Write the pair; the tensors first, so that the JSON never names what is not there.

    Args:
        path: of the JSON.
        text: its content.
        tensors: of `pack_arrays`.
        written: a file that has just been written with them.
    """
    beside = os.path.splitext(path)[0] + ".pt"
    if tensors and not (written is not None and _linked(written, beside)):
        write_atomic(beside, tensors, durable=False)
    write_atomic(path, text, durable=False)


def _linked(source: Path, path: str) -> bool:
    try:
        with replacing(path, durable=False) as temp:
            os.link(source, temp)
    except OSError:  # a file system without links, or no longer there
        return False
    return True


def load_custom_data(path: str, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Custom data of an archive of ours, arrays included."""
    joined = join_arrays(dict(plain), load_arrays(path))
    return joined if isinstance(joined, dict) else {}


def load_arrays(path: str) -> Mapping[str, Any]:
    """Arrays and tensors that lie beside the archive `path`; empty without any."""
    try:
        return _read_arrays(Path(os.path.splitext(path)[0] + ".pt"))
    except (OSError, BrokenFileError):
        return {}


def _read_arrays(path: Path) -> Mapping[str, Any]:
    with open_plain(path) as file:
        return unpack_arrays(file.read())


def unpack_arrays(data: bytes) -> Mapping[str, Any]:
    """What `pack_arrays` made; without torch, what only torch can hold is missing."""
    if "torch" in sys.modules or importlib.util.find_spec("torch") is not None:
        from rla_client.checkpoint.files import load_file  # noqa: PLC0415 - imports torch

        found = load_file(io.BytesIO(data))
        return found if isinstance(found, dict) else {}
    from rla_client.checkpoint.files import decode_arrays  # noqa: PLC0415 - imports numpy

    try:
        return decode_arrays(data)
    except ValueError:
        return {}


# -- the resume state -----------------------------------------------------------------------------


def capture_random_state() -> dict[str, Any]:
    """States of python's, numpy's and torch's (CUDA too) global generators, as plain data."""
    import random  # noqa: PLC0415 - not at import of the package

    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {"python": [version, list(internal), gauss]}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [name, keys.tobytes(), int(position), int(has_gauss), float(cached)]
    if torch is not None:
        state["torch"] = torch.get_rng_state().numpy().tobytes()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = [entry.numpy().tobytes() for entry in torch.cuda.get_rng_state_all()]
    return state


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Bring the generators back to a captured state."""
    if "python" in state:
        import random  # noqa: PLC0415 - not at import of the package

        version, internal, gauss = state["python"]
        random.setstate((version, tuple(internal), gauss))
    if "numpy" in state:
        import numpy as np  # noqa: PLC0415 - it was in use when the state was taken

        name, keys, position, has_gauss, cached = state["numpy"]
        np.random.set_state((name, np.frombuffer(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002
    if "torch" in state:
        import torch  # noqa: PLC0415

        torch.set_rng_state(torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8))
        if "cuda" in state and torch.cuda.is_available():
            entries = [torch.frombuffer(bytearray(entry), dtype=torch.uint8) for entry in state["cuda"]]
            if len(entries) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(entries)


def keep_resume_state(
    run: Run, plain: object, arrays: bytes, name: str, step: int, order: int
) -> Path | None:
    """Store the present state for the checkpoint `<name>_<step>`; nothing here stops training.

    Args:
        run: the open one.
        plain: custom data of `split_custom`, and
        arrays: `pack_arrays` of what belongs to it.
        name: the checkpoint's series.
        step: its time-step.
        order: of its stamp.

    Returns:
        The file with the arrays, where they have one of their own.
    """
    if run.opening is None:
        return None
    state: dict[str, Any] = {
        "format": STATE_FORMAT,
        "order": order,
        "time_step": run.logger.clock.get_time(),
        "random": capture_random_state(),
        "logger": run.logger.memory(),
        "custom_data": plain,
        "saved_by": run.opening.run,
    }
    stem = f"{name}_{step}"
    beside = arrays_name(stem, order) if len(arrays) > MAX_STATE_BYTES else None
    state |= {"arrays": arrays} if beside is None else {"arrays_beside": beside}
    try:
        content = pack(state)
        if len(content) > 2 * MAX_STATE_BYTES:
            content = pack({**state, "custom_data": {}, "arrays": b""})
    except UnicodeEncodeError as error:  # half of a surrogate pair
        warn(f"resume state not written: a key or text of the run is not text ({error.reason})")
        return None
    folder = Path(run.opening.root, run.opening.folders[CHECKPOINT])
    below = folder / RESUME_FOLDER
    try:
        below.mkdir(exist_ok=True)
        if beside is not None:
            write_atomic(below / beside, arrays, durable=False)
        write_atomic(below / f"{stem}.state", content, durable=False)
        for old in arrays_of(folder, stem):  # of an earlier save of that time-step, whose state is gone
            if old.name != beside:
                old.unlink(missing_ok=True)
    except OSError as error:
        warn(f"resume state not written: {error.strerror or error}")
        return None
    run.file(CHECKPOINT, f"{RESUME_FOLDER}/{stem}.state", content)
    return None if beside is None else below / beside


def arrays_of(folder: Path, stem: str) -> list[Path]:
    """Files with arrays beside the states of a checkpoint's time-step; `stem`: of the checkpoint's name."""
    names = re.compile(rf"{re.escape(stem)}(\.[0-9]{{1,20}})?\.arrays", re.DOTALL)
    below = folder / RESUME_FOLDER
    try:
        return [below / name for name in sorted(os.listdir(below)) if names.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_resume_arrays(
    state: Mapping[str, Any], item: Item, name: str, step: int | None
) -> Mapping[str, Any]:
    """Arrays of a resume state of `item`; empty, after a warning, where they are gone."""
    if state.get("arrays"):
        return unpack_arrays(state["arrays"])
    if not state.get("arrays_beside"):  # none, or of an earlier release
        return load_arrays(item.archive_file)
    stem, order = f"{name}_{step}", state.get("order")
    beside = arrays_name(stem, order) if isinstance(order, int) else f"{stem}.arrays"
    path = Path(item.folder(CHECKPOINT), RESUME_FOLDER, beside)
    try:
        return _read_arrays(path)
    except (OSError, BrokenFileError) as error:
        warn(f"arrays and objects of the custom data are None, their file cannot be read: {path}: {error}")
        return {}


def read_resume_state(checkpoint_dir: str | os.PathLike[str], name: str, step: int) -> dict[str, Any] | None:
    """The state stored for a checkpoint, None without one."""
    path = Path(checkpoint_dir) / RESUME_FOLDER / f"{name}_{step}.state"
    try:
        content = msgpack.unpackb(read_small(path, 2 * MAX_STATE_BYTES), strict_map_key=False)
    except (OSError, ValueError, msgpack.UnpackException):
        return None
    return content if isinstance(content, dict) and content.get("format") == STATE_FORMAT else None
