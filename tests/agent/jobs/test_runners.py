"""Runners of checkpoint jobs: what passes is tried again, and the bytes stay until then."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from support.few_descriptors import no_descriptors
from support.spooled import bare_opening

from rla_agent.jobs.job_queue import JobContext, RetryLaterError
from rla_agent.jobs.runners import KINDS
from rla_client.contract.errors import RlaError
from rla_client.contract.spool.losses import Loss, of_job


def context_of(desk: Any) -> JobContext:
    return JobContext(bare_opening(desk.folder.parent, folders={"checkpoint": desk.folder.name}), desk.blobs)


@pytest.mark.parametrize("raw", [False, True])
def test_an_agent_without_descriptors_does_the_job_later(desk: Any, raw: bool) -> None:
    job = desk.raw_blob(b"x" * 1000) if raw else desk.job(b"x" * 1000)
    with no_descriptors(), pytest.raises(RetryLaterError, match="Too many open files"):
        KINDS["checkpoint"].run(job.encode(), context_of(desk))
    assert desk.names() == []
    KINDS["checkpoint"].run(job.encode(), context_of(desk))
    assert desk.names() == ["checkpoint_1.pt"]
    assert list(desk.blobs.iterdir()) == []


@pytest.mark.parametrize("raw", [False, True])
def test_bytes_that_cannot_be_opened_now_are_not_lost(
    desk: Any, raw: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Any, *args: Any, **options: Any) -> int:
        if Path(os.fsdecode(path)).name in {"one.raw", desk.arena.name}:
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *args, **options)

    job = desk.raw_blob(b"x" * 1000) if raw else desk.job(b"x" * 1000)
    opened = os.open
    with monkeypatch.context() as broken:
        broken.setattr(os, "open", failing)
        with pytest.raises(RetryLaterError, match="Input/output"):
            KINDS["checkpoint"].run(job.encode(), context_of(desk))
    KINDS["checkpoint"].run(job.encode(), context_of(desk))
    assert desk.names() == ["checkpoint_1.pt"]


def test_a_loss_names_its_file_once(desk: Any) -> None:
    job = desk.raw_blob(b"x" * 1000)
    (desk.blobs / "one.raw").unlink()
    fields = job.encode()
    with pytest.raises(RlaError) as caught:
        KINDS["checkpoint"].run(dict(fields), context_of(desk))
    told = str(Loss(*of_job("checkpoint", fields), str(caught.value)))
    assert told.startswith("checkpoint checkpoint_1.pt: lost: ")
    assert told.count("checkpoint_1.pt") == 1
