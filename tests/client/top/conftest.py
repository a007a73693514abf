"""A database that the tests fill."""

from __future__ import annotations

import pytest
from written_runs import make_run, own_state, root

pytest.importorskip("textual")

__all__ = ["make_run", "own_state", "root"]
