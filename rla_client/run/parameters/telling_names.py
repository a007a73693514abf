"""Default choice of tracked hyper-parameters.

They distinguish the runs of a program: the seed, the learning rate, and those that the command line
overrides: `--seed 1`, `--env-id=Ant-v4`, `--no-cuda`, `optim.lr=0.1`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rla_client.code.secret_names import OPEN, secrecy

MOST = 6  # names; more would make folder names unreadable
MAX_VALUE = 40  # characters
USUAL = ("seed", "lr", "learning_rate")
_OPTION = re.compile(r"--(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?", re.DOTALL)
_ASSIGNMENT = re.compile(r"\+{0,2}(?P<name>[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)


def telling_names(parameters: Mapping[str, Any], arguments: Sequence[str]) -> list[str]:
    """Hyper-parameters to track, `MOST` at most.

    Args:
        parameters: flat: nested ones with dotted names.
        arguments: of the command line, without the program.
    """
    found = [name for usual in USUAL if (name := _named(usual, parameters)) is not None]
    for option in overrides(arguments):
        name = _named(option, parameters) or _named(option.removeprefix("no_"), parameters)
        if name is not None:
            found.append(name)
    return [name for name in dict.fromkeys(found) if _is_short(name, parameters[name])][:MOST]


def overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """Values set by a command line, by names with `_` for `-`, as programs spell them."""
    found: dict[str, Any] = {}
    waiting: str | None = None
    for word in arguments:
        option = _OPTION.fullmatch(word)
        if option is not None:
            waiting = option["name"].replace("-", "_")
            if option["value"] is None:
                found[waiting] = True
            else:
                found[waiting], waiting = _value(option["value"]), None
        elif waiting is not None:
            found[waiting], waiting = _value(word), None
        elif (assigned := _ASSIGNMENT.fullmatch(word)) is not None:
            found[assigned["name"]] = _value(assigned["value"])
    return {name: value for name, value in found.items() if secrecy(name) == OPEN and _is_short(name, value)}


def _named(wanted: str, parameters: Mapping[str, Any]) -> str | None:
    """The parameter of a name, or the only one whose name ends with it."""
    if wanted in parameters:
        return wanted
    ends = [name for name in parameters if name.rpartition(".")[2] == wanted.rpartition(".")[2]]
    return ends[0] if len(ends) == 1 else None


def _is_short(name: str, value: object) -> bool:
    plain = value is None or isinstance(value, str | int | float)
    return plain and secrecy(name) == OPEN and len(str(value)) <= MAX_VALUE


def _value(text: str) -> Any:  # noqa: ANN401
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return found if isinstance(found, bool | int | float | str) else text
