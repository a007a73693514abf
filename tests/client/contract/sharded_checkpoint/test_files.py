"""Names of the files of a sharded checkpoint."""

from __future__ import annotations

import pytest
from support.sharded_folders import RUN

from rla_client.contract.errors import UnsafeNameError
from rla_client.contract.sharded_checkpoint.files import (
    folder_name,
    is_only_of_the_making,
    parse_folder_name,
    parse_parts_name,
    parts_name,
    receipt_rank,
    save_token,
)


def test_each_of_what_names_a_save_changes_its_token() -> None:
    base = (RUN, 5, "checkpoint", 10, 0)
    others = [("c" * 32, 5, "checkpoint", 10, 0), (RUN, 6, "checkpoint", 10, 0), (RUN, 5, "other", 10, 0)]
    others += [(RUN, 5, "checkpoint", 11, 0), (RUN, 5, "checkpoint", 10, 1)]
    tokens = {save_token(*fields) for fields in (base, *others)}
    assert len(tokens) == 6
    assert save_token(*base) in tokens


def test_names_are_read_back() -> None:
    assert folder_name("a_b", -3) == "a_b_-3.dcp"
    assert parse_folder_name("a_b_-3.dcp") == ("a_b", -3)
    token = "0123456789abcdef"
    assert parse_parts_name(parts_name("a.b", 3, token)) == ("a.b", 3, token)
    for other in ("a_3.pt", "a.dcp", "_3.dcp", "a_3.dcp.tmp"):
        assert parse_folder_name(other) is None
    assert parse_parts_name("a_3.dcp") is None
    assert receipt_rank("shard-12.json") == 12
    assert receipt_rank("shard-012.json") is None
    made = ("plan-3.json", "part.json", "plan.json", "shard-3.json", "whole.json", "plan-x.json")
    assert [name for name in made if is_only_of_the_making(name)] == ["plan-3.json", "part.json", "plan.json"]


@pytest.mark.parametrize("name", ["", "../a", ".hidden", "a/b", "a\0"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        folder_name(name, 1)
