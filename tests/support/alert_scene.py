"""Training processes, a server their alerts arrive at, and both with agents as one scene."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rla_client.contract.agent.places import Places
from support.alert_receivers import HookServer, Scene, Training, serving


@pytest.fixture
def train(tmp_path: Path, places: Places) -> Iterator[Callable[[Path], Training]]:
    made: list[Training] = []

    def start(config: Path) -> Training:
        made.append(Training(config, tmp_path / "data"))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdin, one.process.stdout, one.process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def hook() -> Iterator[HookServer]:
    with serving(HookServer()) as server:
        yield server


@pytest.fixture
def scene(
    tmp_path: Path,
    hook: HookServer,
    new_agent: Callable[..., Any],
    train: Callable[[Path], Training],
    wait_until: Callable[..., Any],
) -> Scene:
    """Nothing runs in it yet but the server."""
    return Scene(tmp_path, hook, new_agent, train, wait_until)
