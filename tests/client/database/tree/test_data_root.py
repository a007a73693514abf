"""Where a command finds its database."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.written_runs import write_run

from rla_client.contract.errors import DatabaseError
from rla_client.database.tree.data_root import find_data_root


def test_the_projects_own_data_comes_before_others_below_it(tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").touch()
    own, other = tmp_path / "data", tmp_path / "sub" / "data"
    for root in (own, other, tmp_path / "sub" / "more"):
        write_run(root)
    (tmp_path / "src").mkdir()
    assert find_data_root(tmp_path) == own
    assert find_data_root(tmp_path / "src") == own
    assert find_data_root(tmp_path / "sub") == other
    assert find_data_root(other) == other


def test_several_of_which_none_is_the_projects_are_told(tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").touch()
    for name in ("a", "b"):
        write_run(tmp_path / name / "data")
    with pytest.raises(DatabaseError, match="several databases"):
        find_data_root(tmp_path)
    assert find_data_root(tmp_path / "b") == tmp_path / "b" / "data"
