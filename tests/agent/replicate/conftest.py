from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faulty_link import Proxy
from replication_lab import Node, Sshd

from rla_agent.replicate import register


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Sshd]:
    """A fresh sshd with an empty root."""
    server = Sshd(tmp_path / "sshd").start()
    yield server
    server.stop()


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
