"""Changes of a run's hyper-parameters.

Each change is a file of its own, `parameter.resumed-N.json`, in the item's log and hyperparameter folders::

    {"time_step": 100, "time": 1763712000.0, "changed": {"lr": [0.1, 0.5]}, "hyper_param": {...}}

`changed` has the former and the new value of each dotted name, null where there was or is none;
`hyper_param` all values from now on. A resume compares with the newest of these files.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import HYPARAM_FILE_NAME, HYPARAMETER, LOG
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.run.parameters.parameter_file import as_stored

if TYPE_CHECKING:
    from rla_client.code.run_secrets import Secrets
    from rla_client.run.item import ItemFolders


CHANGE_KINDS = (LOG, HYPARAMETER)
MAX_TOLD = 10  # changes in the warning; the file has all
MAX_VALUE_CHARS = 80
_CHANGE_NAME = re.compile(rf"{HYPARAM_FILE_NAME}\.resumed-([0-9]{{1,9}})\.json")


def changed_parameters(
    item: ItemFolders, hyper_param: Mapping[str, Any], secrets: Secrets
) -> dict[str, tuple[Any, Any]]:
    """Names whose value differs from the run's last one: name → (former, new).

    Secrets are hidden, so that a change from one to another does not count.
    """
    former = last_parameters(item)
    if former is None or not hyper_param:
        return {}
    return parameter_changes(former, hyper_param, secrets)


def parameter_changes(
    former: Mapping[str, Any], hyper_param: Mapping[str, Any], secrets: Secrets
) -> dict[str, tuple[Any, Any]]:
    """Names whose values differ: name → (former, new), secrets hidden."""
    from rla_client.code.restored_secrets import restored  # noqa: PLC0415 - not at import of the package
    from rla_client.run.parameters.hyper_params import differences  # noqa: PLC0415

    now = as_stored(secrets.parameters(hyper_param))
    then = secrets.parameters(former)  # perhaps AGENT.hide_secrets was off then
    return differences(_flat(restored(then, now, [])), _flat(now))


def last_parameters(item: ItemFolders) -> dict[str, Any] | None:
    """The last hyper-parameters of a run; None where they cannot be read."""
    from rla_client.run.parameters.parameter_reader import read_parameter_file  # noqa: PLC0415 - not at import of the package

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


def named_changes(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Text of changes, with former and new values."""
    told = [f"{name} was {_short(old)}, is now {_short(new)}" for name, (old, new) in changed.items()]
    more = f" and {len(told) - MAX_TOLD} more" if len(told) > MAX_TOLD else ""
    return f"{'; '.join(told[:MAX_TOLD])}{more}"


def tell_changes(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Warn of changed hyper-parameters."""
    return (
        f"this run is resumed with other hyper-parameters: {named_changes(changed)}. It keeps its name and "
        f"first parameters; {HYPARAM_FILE_NAME}.resumed-N.json has the new ones. To make it a run of its "
        "own, give it another run_id"
    )


def keep_changes(
    item: ItemFolders,
    hyper_param: Mapping[str, Any],
    changed: Mapping[str, tuple[Any, Any]],
    time_step: float | None,
) -> tuple[str, bytes]:
    """Write the next `parameter.resumed-N.json` into the item; returns its name and content.

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
    from rla_client.run.parameters.hyper_params import wrap  # noqa: PLC0415 - not at import of the package

    flat: dict[str, Any] = wrap(values).flat()
    return {name: repr(value) if value != value else value for name, value in flat.items()}  # noqa: PLR0124 - NaN


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"
