"""Names that may be components of a path."""

from __future__ import annotations

import pytest

from rla_client.contract.errors import ArgumentError, UnsafeNameError
from rla_client.contract.safe_names import check_relative, check_table_name


@pytest.mark.parametrize("name", ["demo", "a/b", "ünï", "x y", "s3:x", "=cmd", "-rf"])
def test_names_that_are_safe(name: str) -> None:
    assert check_table_name(name) == name


@pytest.mark.parametrize("name", ["", "/a", "a//b", "..", "a/../b", ".", "a\0b", "a\nb", "x" * 256, "\udc80"])
def test_names_that_are_not(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        check_relative(name)


def test_a_table_is_text() -> None:
    with pytest.raises(ArgumentError, match="must be text"):
        check_table_name(5)
