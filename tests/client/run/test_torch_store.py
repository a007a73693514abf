"""The store of torch's process group."""

from __future__ import annotations

import pytest

from rla_client.run import torch_store


def test_without_a_process_group_there_is_no_store() -> None:
    torch_store.put("key", "text")
    assert not torch_store.has_store()
    assert torch_store.look("key") == ""


def test_what_one_rank_puts_the_others_see() -> None:
    distributed = pytest.importorskip("torch.distributed", reason="needs torch")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        assert torch_store.has_store()
        assert torch_store.look("key") == "", "nobody waits for it"
        torch_store.put("key", "tëxt")
        assert torch_store.look("key") == "tëxt"
    finally:
        distributed.destroy_process_group()
    assert torch_store.look("key") == ""
