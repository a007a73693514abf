"""Names of secrets."""

from __future__ import annotations

import pytest
from client.code.test_hidden_text import HARMLESS, SECRET

from rla_client.code.secret_names import OPEN, secrecy


@pytest.mark.parametrize("name", SECRET)
def test_names_of_secrets(name: str) -> None:
    assert secrecy(*name.split(".")) != OPEN


@pytest.mark.parametrize("name", HARMLESS)
def test_names_that_only_sound_like_one(name: str) -> None:
    assert secrecy(*name.split(".")) == OPEN
