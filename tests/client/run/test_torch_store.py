"""The store of torch's process group."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.waiting import wait_until

from rla_client.run import torch_store


@pytest.fixture
def distributed() -> Any:
    return pytest.importorskip("torch.distributed", reason="needs torch")


@contextmanager
def process_group(distributed: Any) -> Iterator[None]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def test_without_a_process_group_there_is_no_store() -> None:
    assert not torch_store.has_store()
    assert torch_store.look("key") == ""


def test_what_one_rank_puts_the_others_see(distributed: Any) -> None:
    with process_group(distributed):
        assert torch_store.has_store()
        assert not torch_store.may_come()
        assert torch_store.look("key") == "", "nobody waits for it"
        torch_store.put("key", "tëxt")
        assert torch_store.look("key") == "tëxt"
    assert torch_store.look("key") == ""


def test_what_is_put_before_the_process_group_is_there_waits_for_it(distributed: Any) -> None:
    assert torch_store.may_come()
    torch_store.put("early", "a text")
    torch_store.put("second", "another")
    assert [one.name for one in threading.enumerate()].count("rla-store") == 1
    with process_group(distributed):
        wait_until(lambda: torch_store.look("second"))
        assert (torch_store.look("early"), torch_store.look("second")) == ("a text", "another")
    wait_until(lambda: "rla-store" not in [one.name for one in threading.enumerate()])
