"""Runs are closed before their spool goes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rla_client import exp_manager
from rla_client.contract.agent.places import Places


@pytest.fixture(autouse=True)
def _closed(places: Places) -> Iterator[None]:
    del places  # the run is closed before they go
    yield
    exp_manager.close()
