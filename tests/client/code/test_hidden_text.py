"""Secrets in texts, command lines and plain data."""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rla_client.code.hidden_text import HIDDEN, hide_in_command, hide_in_text
from rla_client.code.run_secrets import Secrets

SECRET = """
    api_key apikey wandb-api-key wandbApiKey WANDB_API_KEY apiKEY APIKey APIkey token authToken auth_token
    access-token password passwd db_password smtpPassword secret client_secret secretKey credentials
    private_key access_key auth Authorization auth.token wandb.api_key api.key openai_key
    AWS_SECRET_ACCESS_KEY oauth2Token password2 api_key_1 hf_token dbpassword cookie webhook_url
    GITHUB_PAT devops_pat tokens.github keys.openai db_pass api_keys authkey sas_token llm_key SENTRY_DSN otp
""".split()  # noqa: SIM905 - forty words
HARMLESS = """
    key tokens num_tokens max_tokens token_dim tokenizer key_dim keyboard secretary n_keys author monkey
    token_count eos_token pad_token_id tokens_per_batch authors authority password_file token_path
    auth_type secret_name low_pass rng_key sort_key public_key token_embedding max_token passenger compass
    auth_url keys password_length tokenize token_ids hotkey api_keyboard api_key_env map_key passes
    attention_keys lr
""".split()  # noqa: SIM905 - forty words


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({"password": 1234, "token": 5, "use_auth": True, "auth": None, "api_key": ""}, {"password": HIDDEN}),
        ({"num_passwords": 3, "secret_maze": {"lr": 0.1}, "token": "<pad>"}, {}),
        ({"token": {"a": "x1", "dim": "x1"}}, {"token": {"a": HIDDEN, "dim": "x1"}}),
        ({"auth": {"user": "me", "value": "x1"}}, {"auth": {"user": "me", "value": HIDDEN}}),
        ({"credentials": [{"id": "a", "pin": 12}]}, {"credentials": [{"id": HIDDEN, "pin": HIDDEN}]}),
        ({"env": [{"name": "HF_TOKEN", "value": "x1"}]}, {"env": [{"name": "HF_TOKEN", "value": HIDDEN}]}),
        ({"words": ["--api-key", "x1"]}, {"words": ["--api-key", HIDDEN]}),
        ({"pairs": [["api_key", "x1"], ["lr", 1]]}, {"pairs": [["api_key", HIDDEN], ["lr", 1]]}),
        ({"url": "postgres://me:p@ss@h/db"}, {"url": f"postgres://me:{HIDDEN}@h/db"}),
        ({"api_key": "${oc.env:KEY}"}, {}),
        ({"key": "ghp_" + "a1" * 18}, {"key": HIDDEN}),
        ({"args": Namespace(api_key="x1", lr=1)}, {"args": {"api_key": HIDDEN, "lr": 1}}),
        ({"note": "of hunter22", "password": "hunter22"}, {"note": f"of {HIDDEN}", "password": HIDDEN}),
    ],
)  # fmt: skip
def test_values(parameters: dict[str, Any], shown: dict[str, Any]) -> None:
    assert Secrets.of(parameters).parameters(parameters) == parameters | shown
    off = Secrets.of(parameters, hides=False)
    assert off.parameters(parameters) == parameters


@dataclass
class Login:
    """A parameter with a secret in it."""

    user: str
    password: str


def test_what_holds_no_secret_stays_the_object_that_it_is() -> None:
    parameters = {"sizes": (1, 2), "array": np.arange(3), "nan": float("nan"), "login": Login("me", "x1")}
    shown = Secrets.of(parameters).parameters(parameters)
    assert all(shown[name] is parameters[name] for name in ("sizes", "array", "nan"))
    assert shown["login"] == {"user": "me", "password": HIDDEN}
    assert parameters["login"] == Login("me", "x1")


def test_command_lines() -> None:
    words = [
        "t.py", "--k", "v", "--wandb-api-key", "x1", "--token=x1", "api_key=x1", "+auth.token=x1", "++a.b=1",
        "MODEL.API_KEY", "x1", "--api-keys", "x1", "x1", "--n", "3", "--db=postgres://u:x1@h/d",
        "--token-dim", "32", "--password", "1234", '{"api_key": "x1", "b": 1}', "https://x1@github.com/a", "ssh://git@github.com/a",
        "Authorization: Bearer x1", "http://h:80/a@b", "http://h/?a=1&token=x1&b=2", "http://x1:x-oauth-basic@h/",
    ]  # fmt: skip
    shown = hide_in_command(words)
    assert not [word for word in shown if "x1" in word]
    for kept in ("v", "++a.b=1", "--n", "3", "32", "ssh://git@github.com/a", "http://h:80/a@b"):
        assert kept in shown
    assert "1234" not in shown
    assert f"http://h/?a=1&token={HIDDEN}&b=2" in shown


def test_hiding_takes_no_time_on_hostile_texts() -> None:
    started = time.perf_counter()
    for text in (
        "a" * 1_000_000,
        "://" * 300_000,
        "a=" * 300_000,
        "x://u:" + "p@" * 100_000,
        "token" * 200_000,
    ):
        hide_in_text(text)
        Secrets.of({"text": text})
    assert time.perf_counter() - started < 20.0  # what is quadratic takes minutes
