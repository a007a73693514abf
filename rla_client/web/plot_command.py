"""The `rla plot` command that draws a panel."""

from __future__ import annotations

import shlex
from typing import Any

from rla_client.contract.layout import TIME_STEP
from rla_client.web.curve_columns import ELAPSED, ROW
from rla_client.web.request_arguments import asked_names, asked_range
from rla_client.web.run_registry import Site

DATE_LENGTH = 26  # characters of the date that begins an index


def command(site: Site, asked: dict[str, Any]) -> str:
    """The `rla plot` command that draws a panel; a comment behind it names what the command cannot express.

    Args:
        site: the page's databases.
        asked: the arguments of `curves`; also `whole` (whether the runs are all that match `where`) and
            `logY`.

    Raises:
        ArgumentError: an argument is invalid.
    """
    entries = site.chosen(asked.get("runs"))
    places = list(dict.fromkeys(entry.place for entry in entries)) or [0]
    roots = [str(site.databases[place].data_root) for place in places]
    x, group, span = str(asked.get("x") or TIME_STEP), asked.get("group"), asked.get("range")
    group = None if group is None else asked_names(group, "group")
    options: list[tuple[str, object]] = [("data-root", roots[0])]
    if not asked.get("whole"):
        own = [entry.record.index[:DATE_LENGTH] for entry in entries if entry.place == places[0]]
        options += [("run", date) for date in own]
    elif asked.get("where"):
        options.append(("where", asked["where"]))
    if group != []:  # an empty list makes all runs one group
        options.append(("group", "index" if group is None else ",".join(group)))
    options.append(("band", "none" if group is None else asked.get("band") or "ci"))
    if asked.get("ranks"):
        options.append(("ranks", asked["ranks"]))
    if asked.get("smooth"):
        options.append(("smooth", asked["smooth"]))
    if x != TIME_STEP:
        options.append(("x", x))
    if span:
        options.append(("bound", asked_range(span, (0.0, 0.0))[1]))
    lost = {
        f"the runs of {', '.join(roots[1:])}": roots[1:],
        f"x is not a column: {x}": x in {ELAPSED, ROW},
        "the lower end of the zoom": span,
        "logarithmic axes": asked.get("log") or asked.get("logY"),
    }
    words = [f"--{name}={value}" for name, value in options]  # a name or value may begin with a dash
    said = ", ".join(text for text, is_lost in lost.items() if is_lost)
    line = shlex.join(["rla", "plot", *words, "--", str(asked.get("metric"))])
    return line + (f"  # without: {said}" if said else "")
