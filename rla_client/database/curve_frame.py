"""The curves that `Database.curves` gives: a DataFrame that a notebook can show as the page would."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from rla_client.contract.extras import extra

ROOT, X = "rla_curves_root", "rla_curves_x"  # attrs: where the curves are from, and what x is
_SHOWER = "rla_client.web.report"  # above this layer: it is looked up when somebody asks to see


class CurveFrame(pd.DataFrame):
    """Curves in long form; see `Database.curves`. A part of it can be shown as well."""

    @property
    def _constructor(self) -> type[CurveFrame]:
        return CurveFrame

    def show(self, group: str | None = None, band: str = "ci", smooth: float = 0.0) -> Any:  # noqa: ANN401
        """The panels of the page for its runs and metrics, in a notebook, without a server or a network.

        Args:
            group: names of hyper-parameters or fields, separated by commas: one curve with a band a group.
            band: of `rla plot`: ci, iqm, stderr, std, median, range, none.
            smooth: over so many points.

        Returns:
            What a notebook shows as HTML; `.html` is the page as a text.

        Raises:
            ArgumentError: it has no curves, or none of them can be grouped so.
            DatabaseError: the extra `web` is not installed.
        """
        with extra("web", "curves().show()"):
            shower = import_module(_SHOWER)
        runs = list(zip(self["table"].astype(str), self["index"].astype(str), strict=True))
        names = self.attrs.get("full_names", {})
        metrics = [names.get(metric, metric) for metric in self["metric"].astype(str).unique()]
        settings = {"x": str(self.attrs[X]), "group": group or "", "band": band, "smooth": f"{smooth:g}"}
        return shower.panels(Path(self.attrs[ROOT]), list(dict.fromkeys(runs)), metrics, settings)
