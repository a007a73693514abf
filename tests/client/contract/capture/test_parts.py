from __future__ import annotations

import pytest

from rla_client.contract.capture.parts import PARTS, parse_parts


def test_words_choose_parts() -> None:
    whole = frozenset(PARTS)
    assert parse_parts("all") == parse_parts("1") == whole
    assert parse_parts("-wandb, -args") == whole - {"wandb", "args"}
    assert parse_parts("tensorboard,args") == {"tensorboard", "args"}
    assert parse_parts("replace") == whole | {"replace"}
    assert parse_parts("+checkpoints") == whole | {"checkpoints"}
    assert parse_parts("sb3,+checkpoints") == {"sb3", "checkpoints"}
    for text in ("", "0", "off", "none"):
        assert parse_parts(text) == frozenset()


@pytest.mark.parametrize("text", ["tensorbord", "-all", "-replace", "all,x", "--wandb"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="there is no part"):
        parse_parts(text)
