"""Which version of a file goes, when it changes between the plan and the sending."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from replication_lab import random_bytes, tree

from rla_agent.replicate.folder import FolderSession
from rla_agent.replicate.ledger_rows import Due, Key
from rla_agent.replicate.plan import SMALL_BYTES, Whole
from rla_agent.replicate.send import Failed, Job, Result, Sender, Sent
from rla_agent.replicate.source import local_state
from rla_agent.replicate.target import SourceChangedError

ITEM = b"results/task/2026/11/21/09-30-01-000001_10.0.0.5_x"
TEMP = ITEM + b"/.rla-tmp-1"


class Lab:
    """A file, the job that was planned for it, and a master."""

    def __init__(self, folder: Path, size: int) -> None:
        self.master = folder / "master"
        self.root = folder / "data"
        self.file = self.root / os.fsdecode(ITEM) / "x.bin"
        self.file.parent.mkdir(parents=True)
        self.master.mkdir()
        self.file.write_bytes(random_bytes(size, 1))

    def job(self, *, tries: int = 0, start: int = 0) -> Job:
        local = local_state(os.lstat(self.file))
        key = Key(1, b"x.bin")
        due = Due(key, ITEM + b"/x.bin", "results", ITEM, False, local.size, tries, 0, 0.0, (), None)
        return Job(due, Whole(local.size), TEMP, start, local=local)

    def send(self, job: Job) -> Result:
        results: list[Result] = []
        root = os.open(self.root, os.O_RDONLY)
        try:
            Sender(FolderSession(str(self.master)), root, lambda *_: None).send_all([job], results)
        finally:
            os.close(root)
        (result,) = results
        return result

    def there(self) -> bytes:
        return (self.master / os.fsdecode(ITEM) / "x.bin").read_bytes()


@pytest.fixture(params=[1000, SMALL_BYTES + 1000], ids=["small", "large"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    return Lab(tmp_path, request.param)


def test_the_planned_version_goes(lab: Lab) -> None:
    assert isinstance(lab.send(lab.job()), Sent)
    assert lab.there() == lab.file.read_bytes()


def test_another_version_does_not_go(lab: Lab) -> None:
    """What lies on the master after a kill must be a version that the ledger has noted."""
    job = lab.job(tries=5)
    new = lab.file.with_name("new")
    new.write_bytes(random_bytes(300_000, 2))
    new.replace(lab.file)
    result = lab.send(job)
    assert isinstance(result, Failed)
    assert isinstance(result.error, SourceChangedError)
    assert not [path for path in tree(lab.master) if path.endswith("x.bin")]


def test_a_file_that_goes_on_growing_goes_as_it_was(lab: Lab) -> None:
    planned = lab.file.read_bytes()
    for tries, kind in ((0, Failed), (5, Sent)):
        job = lab.job(tries=tries)
        with lab.file.open("ab") as file:
            file.write(b"more")
        assert isinstance(lab.send(job), kind)
    assert lab.there() == planned + b"more"
    found = os.stat(lab.master / os.fsdecode(ITEM) / "x.bin")
    assert job.local is not None
    assert int(found.st_mtime) == job.local.mtime_ns // 10**9  # as the ledger has noted


def test_a_part_of_an_old_version_is_not_gone_on_with(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 500_000)
    folder = lab.master / os.fsdecode(ITEM)
    folder.mkdir(parents=True)
    (lab.master / os.fsdecode(TEMP)).write_bytes(lab.file.read_bytes()[:200_000])
    job = lab.job(tries=5, start=200_000)
    with lab.file.open("r+b") as file:
        file.write(b"rewritten in place")
    assert isinstance(lab.send(job), Failed)
    assert not (folder / "x.bin").exists()
