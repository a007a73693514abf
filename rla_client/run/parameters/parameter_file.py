"""Parameter file of a new item.

`parameter.yaml` (or `.json`) and the run's index have the run's first parameters. The file is written at
once, atomically, and made durable by the agent, which gets its content too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.layout import CODE, HYPARAM_FILE_NAME, HYPARAMETER, LOG
from rla_client.stream.param_values import plain_hyper_param
from rla_client.stream.values import to_plain

if TYPE_CHECKING:
    from rla_client.run.item import ItemFolders


PARAMETER_KINDS = (CODE, LOG, HYPARAMETER)
_LIKE_A_NUMBER = re.compile(r"^[-+]?(\d[\d_]*)?\.?\d*[eE][-+]?\d+$")


def parameter_file(hyper_param: Mapping[str, Any], item: ItemFolders | None = None) -> tuple[str, bytes]:
    """Name and content of the parameter file: YAML when all values are plain data, else JSON.

    Where `item` has one, the new one has the same format.

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
            """Quotes text such as 1e5, which OmegaConf and other readers of YAML 1.2 read as a number."""

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
    """Whether YAML can represent a value exactly: None, bool, int, float, text, lists and dicts of these."""
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


def write_parameters(item: ItemFolders, name: str, content: bytes) -> None:
    """Write the parameter file into its folders; it is durable once the agent has handled it."""
    for kind in PARAMETER_KINDS:
        write_atomic(os.path.join(item.folder(kind), name), content, durable=False)


def as_stored(hyper_param: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as read back from a parameter file."""
    from rla_client.run.parameters.parameter_reader import parse_yaml  # noqa: PLC0415 - not at import of the package

    name, content = parameter_file(hyper_param)
    text = content.decode()
    found = json.loads(text) if name.endswith(".json") else parse_yaml(text)
    return found if isinstance(found, dict) else {}
