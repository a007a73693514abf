from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from rla_client.capture.table_name import table_name


@pytest.mark.parametrize(
    ("file", "spec", "name"),
    [
        ("/home/me/project/ppo.py", None, "ppo"),
        ("/home/me/project/train.py", None, "project"),
        ("/home/me/train/main.py", None, "main"),
        ("/x/site-packages/zoo/train.py", "zoo.train", "zoo"),
        ("/x/site-packages/zoo/__main__.py", "zoo.__main__", "zoo"),
        (None, None, "interactive"),
    ],
)
def test_the_name_of_a_program(
    monkeypatch: pytest.MonkeyPatch, file: str | None, spec: str | None, name: str
) -> None:
    main = ModuleType("__main__")
    main.__file__ = file
    main.__spec__ = None if spec is None else SimpleNamespace(name=spec)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert table_name("", "") == name
    assert table_name("", "ALE/Pong-v5-DQN") == "ALE-Pong-v5-DQN"
    assert table_name("..", "of mine") == "of mine"
