"""Fixtures of the tests of replication."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rla_agent.replicate.registry import register
from support.bucket_lab import KEYS, S3Server
from support.faulty_link import Proxy
from support.replication_lab import Node, Sshd


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Sshd]:
    """A fresh sshd with an empty root."""
    server = Sshd(tmp_path / "sshd").start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A fresh S3 server."""
    made = S3Server(tmp_path_factory.mktemp("s3"))
    yield made
    made.stop()


@pytest.fixture
def bucket_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its client finds in the environment."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(server: S3Server) -> str:
    return server.bucket()


@pytest.fixture
def proxy(master: Sshd) -> Iterator[Proxy]:
    between = Proxy(master.port)
    yield between
    between.close()


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Makes registered nodes; their workers are gone at the end."""
    nodes: list[Node] = []

    def make(remote: dict[str, object], name: str = "node", **more: object) -> Node:
        node = Node(tmp_path / name, remote, **more)  # type: ignore[arg-type]
        nodes.append(node)
        register(node.state, node.root, node.config)
        return node

    yield make
    for node in nodes:
        node.kill()


@pytest.fixture
def node(master: Sshd, make_node: Callable[..., Node]) -> Node:
    return make_node(master.remote())
