"""Secrets of a run, hidden wherever they appear."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rla_client.code import run_secrets, secret_names
from rla_client.code.hidden_text import HIDDEN
from rla_client.code.run_secrets import Secrets
from rla_client.code.secret_names import ANY, secrecy


def test_a_known_secret_is_hidden_word_for_word_in_every_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", 'line one 1\\ "quoted"/ü')
    monkeypatch.setenv("APP_CREDENTIALS", "/a/path/is/none")
    monkeypatch.setenv("MY_AUTH", "required")
    secrets = Secrets.of({})
    value = 'line one 1\\ "quoted"/ü'
    for text in (value, repr({"a": value}), f"{[value]}"):
        assert HIDDEN in secrets.verbatim(text)
        assert "one 1" not in secrets.verbatim(text)
    assert secrets.verbatim("/a/path/is/none is required") == "/a/path/is/none is required"


def test_passwords_are_numbers_too() -> None:
    assert secrecy("password") == ANY
    assert Path(str(Secrets().value("password", 12))) == Path(HIDDEN)


def test_a_variable_that_goes_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's run ends, which takes its variables out of the environment."""
    monkeypatch.setenv("RLA_TEST_FIRST", "1")
    monkeypatch.setenv("RLA_TEST_GOES", "1")
    known = secret_names.secrecy

    def take_out(*arguments: Any, **named: Any) -> Any:
        if "RLA_TEST_FIRST" in arguments:
            os.environ.pop("RLA_TEST_GOES", None)
        return known(*arguments, **named)

    monkeypatch.setattr(run_secrets, "secrecy", take_out)
    Secrets.of({})
