from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any

from rla_client.capture.captured_parameters import counted, merged, plain, tracked
from rla_client.capture.hooks.seen_parameters import (
    CONFIG,
    FILES,
    HPARAMS,
    PARSER,
    MarkdownParameters,
    ParameterSource,
)


@dataclass
class _Optim:
    lr: float = 0.1


@dataclass
class _Args:
    seed: int = 1
    optim: _Optim = field(default_factory=_Optim)
    make: Any = plain


def test_the_higher_rank_wins_and_the_later_among_equals() -> None:
    sources = [
        ParameterSource(HPARAMS, "add_hparams", {"a": 4}, ()),
        ParameterSource(CONFIG, "wandb", {"a": 3, "b": 3}, ()),
        ParameterSource(FILES, "hydra", {"a": 0, "b": 0, "c": 0, "d": 0}, ()),
        ParameterSource(PARSER, "argparse", argparse.Namespace(b=1, c=1), ()),
        ParameterSource(PARSER, "argparse", argparse.Namespace(c=2), ()),
    ]
    assert merged(sources) == {"a": 4, "b": 3, "c": 2, "d": 0}
    assert counted(sources) == {"add_hparams": 1, "wandb": 1, "hydra": 1, "argparse": 1}


def test_nested_dataclasses_become_dicts_and_code_is_left_out() -> None:
    assert plain(_Args()) == {"seed": 1, "optim": {"lr": 0.1}}
    assert plain(argparse.Namespace(func=print, x=1, _hidden=2)) == {"x": 1}
    assert plain(MarkdownParameters("|param|value|\n|-|-|\n|lr|0.5|")) == {"lr": 0.5}


def test_what_the_command_line_sets_and_the_seed_are_tracked() -> None:
    parameters = {"seed": 3, "lr": 0.1, "name": None, "layers": [1], "optim": {"lr": 0.2}, "text": "x" * 99}
    assert tracked(parameters, ["lr", "name", "layers", "optim.lr", "text", "gone"]) == [
        "lr",
        "optim.lr",
        "seed",
    ]
    many = {f"p{number}": number for number in range(9)} | {"seed": 1}
    assert tracked(many, list(many)[:9]) == ["p0", "p1", "p2", "p3", "p4", "seed"]
    assert tracked(parameters, ["lr"], ["name", "seed"]) == ["seed"]
    assert tracked({"seed": None}, []) == []
