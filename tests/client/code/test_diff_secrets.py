"""Secrets in a diff."""

from __future__ import annotations

import time

import pytest
from support.waiting import TIME_FACTOR

from rla_client.code.diff_secrets import hide_in_diff
from rla_client.code.hidden_text import HIDDEN, hide_in_url


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("+  password: hunter2", f"+  password: {HIDDEN}"),
        ('-API_KEY = "abc"', f"-API_KEY = {HIDDEN}"),
        ('+  "secret_value": "abc",', f'+  "secret_value": {HIDDEN},'),
        ("+token = tokenizer(x)", "+token = tokenizer(x)"),
        ("+password = read_password(path)", "+password = read_password(path)"),
        ('+wandb.login(api_key="abc", x=1)', f"+wandb.login(api_key={HIDDEN}, x=1)"),
        ("+max_tokens = 12", "+max_tokens = 12"),
        ("+token=token,", "+token=token,"),
        ("+url = 'ssh://me:pw@host'", f"+url = 'ssh://me:{HIDDEN}@host'"),
    ],
)
def test_values_of_secrets_in_a_diff_are_hidden(line: str, shown: str) -> None:
    assert hide_in_diff(line) == shown


def test_hiding_takes_no_time_on_hostile_lines() -> None:
    text = "+" + "a" * 1_000_000 + "\n" + ("+" + "secret" * 160 + "\n") * 1000

    started = time.process_time()
    hide_in_diff(text)

    assert time.process_time() - started < 20.0 * TIME_FACTOR  # what is quadratic takes minutes
    assert hide_in_url("x://" + "a" * 1000) == "x://" + "a" * 1000
