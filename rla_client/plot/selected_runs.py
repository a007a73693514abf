"""Runs that `plot_func` selects by globs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.database.compare.group_key import quoted
from rla_client.database.tree.items import find_items
from rla_client.run.parameters.hyper_params import HyperParams, read_hyper_params

NOT_FOUND = "NF"
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """One run of a plot.

    Attributes:
        table: its task table.
        index: `YYYY/MM/DD/<name>`.
        dirname: folder of the run's item.
        hyper_param: hyper-parameters.
        reg: the first glob that matches the run.
    """

    table: str
    index: str
    dirname: str
    hyper_param: HyperParams
    reg: str


def select(
    data_root: Path,
    table: str,
    regs: Sequence[str],
    kind: str,
    hp_filter: Mapping[str, Iterable[Any]] | None,
    tell: Callable[[str], None],
) -> list[Selected]:
    """Runs that match the globs and pass the filter.

    Args:
        data_root: the database.
        table: task table.
        regs: globs below the table, in the order of the curves.
        kind: kind of data that a run must have.
        hp_filter: `{key: allowed values}`, values as text or numbers; runs without a key pass, as in RLA.
        tell: called with a line about each problem or run that is left out.

    Raises:
        ArgumentError: two globs match the same run.
    """
    found: dict[str, Selected] = {}
    for reg in regs:
        for item in find_items(data_root, kind, table, reg):
            if item.index in found:
                if found[item.index].reg == reg:
                    continue
                message = (
                    f"{item.index} is matched by {found[item.index].reg!r} and {reg!r}; a run belongs to one"
                )
                raise ArgumentError(message)
            hyper, problems = read_hyper_params(data_root, table, item.index)
            for problem in problems:
                tell(problem)
            reason = _refused(hyper, hp_filter)
            if reason:
                tell(f"left out {item.index}: {reason}")
                continue
            found[item.index] = Selected(table, item.index, item.paths[0], hyper, reg)
    return list(found.values())


def _refused(hyper: HyperParams, hp_filter: Mapping[str, Iterable[Any]] | None) -> str:
    for key, allowed in (hp_filter or {}).items():
        try:
            value = hyper.dotted(key)
        except KeyError:
            continue
        choices = [allowed] if isinstance(allowed, str | int | float) else list(allowed)
        if not any(_same(value, choice) for choice in choices):
            return f"{key} is {value}, not in {choices}"
    return ""


def _same(value: object, choice: object) -> bool:
    if value == choice or str(value) == str(choice):
        return True
    if isinstance(value, bool) or isinstance(choice, bool):
        return False
    try:
        return float(str(value)) == float(str(choice))
    except ValueError:
        return False


def split_values(hyper: HyperParams, keys: Sequence[str]) -> dict[str, str]:
    """Values of the split keys as text, `NF` for a missing key."""
    found = {}
    for key in keys:
        try:
            found[key] = str(hyper.dotted(key))
        except KeyError:
            found[key] = NOT_FOUND
    return found


def default_key_to_legend(
    parse_dict: Mapping[str, str], split_keys: Sequence[str], y_name: str, use_y_name: bool = True
) -> str:
    """Legend such as `lr=0.1.seed=3`, unique for each group; with ` eval:<metric>` if metrics share a panel.

    Values are quoted as by `group_label`.
    """
    name = ".".join(f"{key}={quoted(parse_dict[key])}" for key in split_keys)
    return f"{name} eval:{y_name}" if use_y_name else name


def curve_order(key: str) -> list[tuple[int, float, str]]:
    """Sort key of group keys, with the numbers in them compared as numbers: lr=9 comes before lr=10."""
    parts = _NUMBER.split(key)
    return [(0, float(part), "") if place % 2 else (1, 0.0, part) for place, part in enumerate(parts)]
