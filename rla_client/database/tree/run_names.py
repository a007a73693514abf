"""Parts of a run's index as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rla_client.contract.run_index import DATE_LENGTH, make_info

if TYPE_CHECKING:
    from rla_client.run.parameters.hyper_params import HyperParams


def short_name(index: str) -> str:
    """The date part of an index."""
    return index[:DATE_LENGTH]


def shown_name(table: str, index: str) -> str:
    """Table and index for people, without the trailing `_&` of an index without tracked parameters."""
    return f"{table}/{index[:-2] if index.endswith(('_&', ' &')) else index}"


def tracked_texts(index: str, hyper: HyperParams | None = None) -> dict[str, str]:
    """The tracked hyper-parameters, as texts from the index.

    Args:
        index: index of a run.
        hyper: all hyper-parameters, to recognize values that hold an `&`.
    """
    parts = index.partition("&")[2].split("&")
    found = {}
    place = 0
    while place < len(parts):
        taken = _parts_of_value(parts[place:], hyper) if hyper else 1
        key, sign, value = "&".join(parts[place : place + taken]).partition("=")
        if sign:
            found[key] = value
        place += taken
    return found


def _parts_of_value(parts: list[str], hyper: HyperParams) -> int:
    """Number of parts between `&` that the first parameter's value spans."""
    key = parts[0].partition("=")[0]
    try:
        value = hyper.dotted(key)
    except KeyError:
        return 1
    whole = make_info([(key, value)])[1:]
    count = whole.count("&") + 1
    return count if "&".join(parts[:count]) == whole else 1
