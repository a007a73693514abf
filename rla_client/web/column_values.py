"""Values of the columns of the list of runs."""

from __future__ import annotations

import re
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.database.clock import clock
from rla_client.database.compare.group_key import group_text
from rla_client.database.filter.name_completion import full_names
from rla_client.database.records.row_view import RowView
from rla_client.web.curve_points import extremes
from rla_client.web.page_json import sent
from rla_client.web.request_arguments import is_texts
from rla_client.web.run_registry import Site

MAX_COLUMNS = 200  # of one answer
_EXTREME = re.compile(r"(?P<which>max|min)\((?P<metric>.+)\)")


def column_values(site: Site, names: object, numbers: object, group: object = None) -> dict[str, list[Any]]:
    """Values of columns for some runs, in the order of the runs; for grouping columns also their `texts`.

    Args:
        site: the page's databases.
        names: fields, hyper-parameters, metrics (their last value), `max(METRIC)`, `min(METRIC)`.
        numbers: of the runs; None: all, by number.
        group: the names by which runs are grouped.

    Raises:
        ArgumentError: `names` is not a list of texts, or too long.
    """
    if not is_texts(names) or len(names) > MAX_COLUMNS:
        raise ArgumentError(f"a list of at most {MAX_COLUMNS} names is needed")
    entries = site.entries() if numbers is None else site.chosen(numbers)
    now = clock()
    plain = [name for name in names if not _EXTREME.fullmatch(name)]
    full = full_names(set(plain), [entry.record for entry in entries], lenient=True)
    grouped = {name for name in plain if is_texts(group) and name in group}
    found: dict[str, list[Any]] = {name: [] for name in plain}
    texts: dict[str, list[Any]] = {name: [] for name in grouped}
    for entry in entries:  # run by run: large parameters are not kept parsed
        view = RowView(entry.record, now)
        for name, values in found.items():
            value = view.get(full[name])
            values.append(sent(value))
            if name in grouped:
                texts[name].append(group_text(value))
    for name in names:
        if match := _EXTREME.fullmatch(name):
            which = match["which"] == "max"
            ends = extremes(site, entries, match["metric"])
            found[name] = [None if pair is None else pair[which] for pair in ends]
    return {
        "number": [entry.number for entry in entries],
        "values": [found[name] for name in names],
        "texts": [texts.get(name) for name in names],
    }
