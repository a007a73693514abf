"""Databases for the lake; files count as settled at once."""

from __future__ import annotations

import pytest
from support.written_runs import make_run, own_state, rla, root  # noqa: F401 - fixtures

pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla_client.database.change_signatures.RACY_NS", 0)
    monkeypatch.setattr("rla_client.database.catalogue.RACY_NS", 0)
    monkeypatch.setattr("rla_client.database.curves.curve_reader.LAKE_FROM", 1)
    monkeypatch.setattr("rla_client.database.catalogue.SEED_FROM", 1)
