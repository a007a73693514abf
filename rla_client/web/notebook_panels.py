"""Panels of some runs in a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rla_client.web.report import make_report
from rla_client.web.run_registry import Site

PANEL_PX = 340
MAX_PX = 1100  # of the frame, which scrolls beyond it


def panels(
    data_root: Path, runs: Sequence[tuple[str, str]], metrics: Sequence[str], settings: Mapping[str, str]
) -> Panels:
    """Panels of runs, which are given as (table, index).

    Raises:
        ArgumentError: there is no such run, or a setting is invalid.
    """
    paths = [f"0/{table}/{index}" for table, index in runs]
    view = {name: [value] for name, value in settings.items() if value} | {"list": ["none"], "run": paths}
    page = make_report(Site([data_root]), view, len(paths) + 1, metrics=metrics)
    rows = -(-len(metrics) // 2)
    return Panels(page.decode(), min(PANEL_PX * rows + 60, MAX_PX))


@dataclass(frozen=True, slots=True)
class Panels:
    """Panels that a notebook shows.

    Their frame is a sandbox: its scripts reach neither the notebook nor the browser's storage for it.
    """

    html: str  # the complete page
    height_px: int  # of the frame

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {self.height_px}px; border: 0"
        page = html.escape(self.html)
        return f'<iframe sandbox="allow-scripts allow-downloads" style="{style}" srcdoc="{page}"></iframe>'

    def __repr__(self) -> str:
        return f"<panels for a notebook, {len(self.html) / 1e6:.1f} MB of HTML>"
