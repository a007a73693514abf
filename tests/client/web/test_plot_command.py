"""The `rla plot` command of a panel."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from support.written_runs import write_run

from rla_client.web import plot_command
from rla_client.web.run_registry import Site


@pytest.mark.parametrize(
    ("further", "words"),
    [
        ({"whole": True}, ["--group=index", "--band=none"]),
        ({"whole": True, "group": []}, ["--band=ci"]),
        ({"where": "lr == '1'", "log": True}, ["--run={}", "--group=index", "--band=none"]),
        ({"whole": True, "where": "lr == '1'"}, ["--where=lr == '1'", "--group=index", "--band=none"]),
        (
            {"group": ["lr", "-x"], "band": "iqm", "smooth": 3},
            ["--run={}", "--group=lr,-x", "--band=iqm", "--smooth=3"],
        ),
        (
            {"x": "loss", "range": [1.5, 2.5]},
            ["--run={}", "--group=index", "--band=none", "--x=loss", "--bound=2.5"],
        ),
    ],
)  # fmt: skip
def test_the_command_of_a_panel(root: Path, further: dict[str, Any], words: list[str]) -> None:
    index = write_run(root)
    site = Site([root])
    site.look(wait=True)
    line = plot_command.command(site, {"runs": [0], "metric": "--return", **further})
    own = [word.format(index[:26]) for word in words]
    assert shlex.split(line, comments=True) == ["rla", "plot", f"--data-root={root}", *own, "--", "--return"]
    assert ("lower end" in line, "logarithmic" in line) == ("range" in further, "log" in further)
