"""Secrets that were hidden come back: from the program's own values, or from the environment."""

from __future__ import annotations

from argparse import Namespace

from rla_client.code.hidden_text import HIDDEN
from rla_client.code.restored_secrets import refilled, restored, taken_over


def test_own_values_take_the_place_of_hidden_ones() -> None:
    own = {"api_key": "own", "login": Namespace(password="p"), "list": [{"token": "t"}], "lr": 2}
    stored = {
        "api_key": HIDDEN,
        "login": {"user": "me", "password": HIDDEN},
        "list": [{"token": HIDDEN}],
        "lr": 1,
    }
    assert taken_over(stored, own) == (
        {"api_key": "own", "login": {"user": "me", "password": "p"}, "list": [{"token": "t"}], "lr": 1}, "",
    )  # fmt: skip
    found, lacking = taken_over(stored, {"lr": 2})
    assert found == {"login": {"user": "me"}, "list": [{}], "lr": 1}
    assert "api_key, login.password, list[0].token" in lacking
    sizes = {"sizes": (1, 2)}
    assert restored(sizes, {}, []) is sizes


def test_a_command_line_gets_its_secrets_back_from_the_environment() -> None:
    words = [
        "--wandb-api-key",
        HIDDEN,
        f"--db=postgres://u:{HIDDEN}@h",
        f"+auth.token={HIDDEN}",
        f"http://{HIDDEN}@h",
    ]
    environment = {
        "WANDB_API_KEY": "k",
        "DB": "postgres://u:p@h",
        "AUTH_TOKEN": "t",
        "RLA_ARGUMENT_5": "http://x@h",
    }
    assert refilled(["--keys", HIDDEN, HIDDEN], {"KEYS": "a", "KEYS_2": "b"}) == (["--keys", "a", "b"], [])
    whole = ["--wandb-api-key", "k", "--db=postgres://u:p@h", "+auth.token=t", "http://x@h"]
    assert refilled(words, environment) == (whole, [])
    _, missing = refilled(words[:3], {"DB": "x"})
    assert missing == [("--wandb-api-key", "WANDB_API_KEY")]
