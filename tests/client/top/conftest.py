"""A database that the tests fill."""

from __future__ import annotations

import pytest
from support.written_runs import make_run, own_state, root

pytest.importorskip("textual")

__all__ = ["make_run", "own_state", "root"]
