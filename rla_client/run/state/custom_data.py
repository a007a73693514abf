"""Encoding of custom data.

`split_arrays` converts a value into data for JSON and msgpack, with arrays apart; `join_arrays` is its
inverse. None, numbers, text, lists and dicts with text as keys are unchanged; other values become dicts with
one of the marks below (`__rla_array__`, …), so that tuples, sets, bytes, deques, dicts with other keys, and
objects of registered types are restored. Reading never imports or calls names in a file: a registered pair of
functions is the reader's own, and without one an object stays plain data. Any other object is pickled, by
itself, and read as a `Pickled`: the rule for checkpoints decides whether it may be opened (`open_own`), and
`saved_by` names the run that wrote it. An unopened object is not stored again, since it would count as the
next run's own. An object that cannot be pickled is left out with one warning and costs no checkpoint. Tensors
of which this rank has only a part are refused as in checkpoints, also within objects (`refused_shards`).
"""

from __future__ import annotations

import base64
import binascii
import io
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rla_client.contract.errors import ArgumentError, ShardedContentError
from rla_client.contract.process.loaded_modules import loaded
from rla_client.run.current_logger import warn
from rla_client.run.failure import reason_text
from rla_client.stream.values import MAX_INT_BITS

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
MAX_DEPTH = 100  # a value that contains itself ends here
MAX_KNOWN = 1000  # warnings that are remembered, of all runs of a process
MANY_PICKLED_BYTES = 64 << 20
PICKLE_PROTOCOL = 4  # of objects: any Python that this runs on reads it
_PLAIN = (type(None), bool, int, float, str)
_MARKED: dict[type, str] = {tuple: TUPLE_KEY, set: SET_KEY, frozenset: FROZEN_KEY}


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
        to_plain: converts an object into plain data, which may have arrays in it.
        from_plain: the inverse of `to_plain`.
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
    """Arrays by path, with the values that are left out.

    Attributes:
        left_out: path → why.
        pickled: bytes of all pickles.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left_out: dict[str, str] = {}
        self.pickled = 0


class Pickled:
    """A pickled object of custom data, as read from its file.

    Attributes:
        content: the pickle.
        problem: why it was not opened.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.problem = "nobody vouches for its file"

    def __repr__(self) -> str:
        return f"<an object that was not loaded: {self.problem}>"


class _ContainsItself:
    """A value that contains itself, which a pickle can represent and plain data cannot."""

    def __init__(self, value: object) -> None:
        self.value = value


def split_custom(custom_data: Mapping[str, Any], run: str = "") -> tuple[Any, Parts]:
    """Plain data and arrays of all custom data; values that cannot be stored are left out.

    There is one warning for each name of a run.

    Raises:
        ShardedContentError: of a tensor in it this rank holds a part.
    """
    parts = Parts()
    entries: dict[str, object] = {}
    for key, value in dict(custom_data).items():
        known = len(parts.left_out)
        try:
            entries[key] = _split_one(value, parts, f"/{key}")
        except ShardedContentError as error:
            raise ShardedContentError(f"custom data {key!r}: {error}", error.what) from error
        path, why = next(islice(parts.left_out.items(), known, None), ("", ""))
        if why and _first(run, key):
            warn(f"custom data {path[1:]!r} {why}: it is not stored; all other custom data is")
    if parts.pickled > MANY_PICKLED_BYTES and _first(run, None):
        warn(
            f"objects in the custom data take {parts.pickled >> 20} MiB, and each save_checkpoint waits "
            "until they are pickled; put them into the checkpoint's content, which is copied and written in "
            "the background"
        )
    return _with_keys(entries, parts, "", 0), parts


def _split_one(value: object, parts: Parts, path: str) -> object:
    """`split_arrays` of one entry; None, with a reason in `left_out`, where it fails."""
    sizes = len(parts), len(parts.left_out), parts.pickled
    error: Exception | None = None
    for tried in (value, _ContainsItself(value)):
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
    """Whether this warning of a run is the first one."""
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
        from rla_client.checkpoint.refused_shards import refuse_shard  # noqa: PLC0415 - not at import of the package

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
        content = _pickled(value.value if isinstance(value, _ContainsItself) else value)
    except ShardedContentError:
        raise
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
        ShardedContentError: of a tensor in it this rank holds a part.
    """
    if isinstance(value, Pickled):
        raise ArgumentError(f"was not loaded ({value.problem}): get_custom_data(key, trust=True) loads it")
    try:
        return _written(value, pickle.Pickler)
    except ShardedContentError:
        raise
    except Exception:  # noqa: BLE001 - the user's class; see below
        try:
            import cloudpickle  # noqa: PLC0415 - rarely needed

            return _written(value, cloudpickle.Pickler)
        except ShardedContentError:
            raise
        except Exception as error:
            raise ArgumentError(
                f"is a {type(value).__name__}, which cannot be pickled ({reason_text(error)})"
            ) from error


def _written(value: object, pickler: type[pickle.Pickler]) -> bytes:
    """The pickle of an object.

    Raises:
        ShardedContentError: of a tensor in it this rank holds a part.
    """
    from rla_client.checkpoint.refused_shards import pickle_names_shards, refuse_shard, sharded_types  # noqa: PLC0415 - not at import of the package

    file = io.BytesIO()
    pickler(file, PICKLE_PROTOCOL).dump(value)
    content = file.getvalue()
    torch = loaded("torch")
    if torch is not None and pickle_names_shards(content):  # then each object is examined
        kinds = *sharded_types(), torch.nn.Parameter  # the latter: flat ones of FullyShardedDataParallel

        def refuse(found: object) -> None:
            if isinstance(found, kinds):
                refuse_shard(found)

        looking = type("_Looking", (pickler,), {"persistent_id": staticmethod(refuse)})
        looking(io.BytesIO(), PICKLE_PROTOCOL).dump(value)
    return content


def _opened(content: bytes) -> object:
    """The object of a pickle, opened by the rule for checkpoints.

    Raises:
        Exception: the user's class is gone, or refuses.
        ShardedContentError: of a tensor in it another rank held the rest.
    """
    value: object = pickle.loads(content)  # noqa: S301 - see above
    from rla_client.checkpoint.refused_shards import not_whole, pickle_names_shards  # noqa: PLC0415 - not at import of the package

    if pickle_names_shards(content):
        try:
            _pickled(value)  # meets every tensor
        except ShardedContentError as error:
            raise not_whole(io.BytesIO(), error.what) from error
    return value


def array_kind(value: object) -> str | None:
    """`numpy`, `torch`, `tensorflow` or `scalar` (a numpy one), None for anything else."""
    numpy, torch = loaded("numpy"), loaded("torch")
    tensorflow = loaded("tensorflow")
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
    """Custom data with its pickles opened; where there is a `problem`, they stay closed and have it."""
    if isinstance(value, Pickled):
        if problem is None:
            try:
                return _opened(value.content)
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
    """The result of `make`, which hashes the user's objects; the value itself where they are unhashable."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - the user's class
        for entry in value:
            open_own(entry, reason_text(error))
        return value


def unopened(value: object, depth: int = MAX_DEPTH) -> Pickled | None:
    """An unopened pickle in custom data; None without one."""
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
