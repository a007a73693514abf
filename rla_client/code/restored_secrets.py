"""Restoration of hidden secrets.

The marker of a hidden value is never used as the value: `restored` replaces it by the program's own value, or
reports its name; `refilled` does so for a command line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rla_client.code.hidden_text import HIDDEN
from rla_client.code.secret_names import words_of
from rla_client.stream.param_values import plain_hyper_param

DESCRIBED = "$typename"  # key in the description of an object (launcher/launch_parameters.py): its class


def is_hidden(stored: object) -> bool:
    """Whether a stored value contains the marker of a secret."""
    return isinstance(stored, str) and HIDDEN in stored


def restored(stored: Any, own: Any, missing: list[str], name: str = "") -> Any:  # noqa: ANN401
    """Stored data with each hidden value replaced by the program's own; the same object if nothing is hidden.

    Args:
        stored: the data as it was read.
        own: the program's values now, plain data or objects.
        missing: gets the dotted names of hidden values that `own` lacks. They are left out of their dict,
            and None in a list.
        name: dotted name of `stored`.
    """
    if is_hidden(stored):
        if own is None:
            missing.append(name)
            return None
        return own
    if isinstance(stored, Mapping) and DESCRIBED in stored:
        return stored  # attributes of an object, which is not recreated
    if isinstance(stored, Mapping):
        known = own if isinstance(own, Mapping) else plain_hyper_param(own)
        mine = known if isinstance(known, Mapping) else {}
        result: dict[Any, Any] = {}
        for key, value in stored.items():
            before = len(missing)
            found = restored(value, mine.get(key), missing, f"{name}.{key}" if name else str(key))
            if not (is_hidden(value) and len(missing) > before):
                result[key] = found
        return result if len(result) < len(stored) or _differs(result.values(), stored.values()) else stored
    if isinstance(stored, list | tuple):
        fits = isinstance(own, list | tuple) and len(own) == len(stored)
        items = [
            restored(value, own[number] if fits else None, missing, f"{name}[{number}]")
            for number, value in enumerate(stored)
        ]
        return items if _differs(items, stored) else stored
    return stored


def _differs(some: Iterable[object], others: Iterable[object]) -> bool:
    return any(one is not other for one, other in zip(some, others, strict=True))


def taken_over(stored: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Stored parameters for this program, and a text about the secrets that it lacks ("": none)."""
    missing: list[str] = []
    found: dict[str, Any] = restored(stored, own, missing)
    if not missing:
        return found, ""
    return found, f"not stored because they are secret: {', '.join(missing)}; set them with set_hyper_param"


def refilled(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """A stored command line with its hidden values taken from the environment.

    The variable is the option's name in capitals: WANDB_API_KEY for `--wandb-api-key`. It is RLA_ARGUMENT_<n>
    if the n-th argument (from 1) has no name; _2, _3, … are appended for further values of an option.

    Returns:
        The arguments, and (argument, variable) of each hidden value that the environment lacks.
    """
    result: list[str] = []
    missing: list[tuple[str, str]] = []
    option, asked = "", Counter[str]()  # the current option; how many values each variable had
    for number, argument in enumerate(arguments, 1):
        head, equals, _ = argument.partition("=")
        if not is_hidden(argument):
            option = "" if equals else head
            result.append(argument)
            continue
        named = bool(equals) and HIDDEN not in head and "://" not in head
        name = head if named else option
        option = name if argument == HIDDEN else ""  # an option may have several values
        variable = words_of(name).upper() or f"RLA_ARGUMENT_{number}"
        asked[variable] += 1
        variable += f"_{asked[variable]}" if asked[variable] > 1 else ""
        value = environment.get(variable)
        if value is None:
            missing.append((name or argument, variable))
        whole = f"{head}={value}" if named else value
        result.append(argument if value is None else str(whole))
    return result, missing
