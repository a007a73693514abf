"""Which version of a file goes, when it changes between the plan and the sending."""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from support.replication_lab import random_bytes, tree

from rla_agent.replicate.backend.errors import SourceChangedError
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.file_state import SentRecord
from rla_agent.replicate.ledger_rows import Due, Key, SendAttempt
from rla_agent.replicate.worker.file_decision import SMALL_BYTES, Append, ReplaceFile, UpToDate, decide
from rla_agent.replicate.worker.send import Sender
from rla_agent.replicate.worker.send_job import Failed, Result, SendJob, Sent
from rla_agent.replicate.worker.source_file import SourceFile, local_state

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

    def job(self, *, tries: int = 0, start: int = 0) -> SendJob:
        local = local_state(os.lstat(self.file))
        key = Key(1, b"x.bin")
        due = Due(key, ITEM + b"/x.bin", "results", ITEM, False, local.size, tries, 0, 0.0, (), None)
        return SendJob(due, ReplaceFile(local.size), TEMP, start, local=local)

    def send(self, job: SendJob) -> Result:
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


def test_one_that_is_gone_on_with_has_its_own_sums_in_the_ledger(tmp_path: Path) -> None:
    """What was damaged of the part is read here for the second time; all of it is hashed once."""
    lab = Lab(tmp_path, 500_000)
    data = lab.file.read_bytes()
    (lab.master / os.fsdecode(ITEM)).mkdir(parents=True)
    (lab.master / os.fsdecode(TEMP)).write_bytes(data[:150_000] + bytes(50_000))
    result = lab.send(replace(lab.job(start=200_000), sure=100_000))
    assert isinstance(result, Sent)
    assert lab.there() == data
    assert result.record.crc == zlib.crc32(data)
    assert result.record.sha256 == hashlib.sha256(data).digest()


@pytest.mark.parametrize("changes", [True, False])
def test_a_version_written_while_the_masters_is_looked_at_counts_as_changed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, *, changes: bool
) -> None:
    """After an answer that was lost: the master has our file, but the ledger does not know it."""
    lab.send(lab.job())
    (there,) = lab.master.rglob("x.bin")
    os.utime(there, (1_700_000_000, 1_700_000_000))
    before = lab.file.read_bytes()
    looked: list[bytes] = []
    read, read_theirs = SourceFile.read, FolderSession.read

    def look(session: FolderSession, path: bytes, offset: int, count: int) -> bytes:
        looked.append(path)
        return read_theirs(session, path, offset, count)

    def change_after(source: SourceFile, offset: int, count: int) -> bytes:
        data = read(source, offset, count)
        if changes and looked and offset + len(data) == len(before):
            lab.file.write_bytes(random_bytes(len(before) + 50_000, 3))
            looked.clear()
        return data

    monkeypatch.setattr(FolderSession, "read", look)
    monkeypatch.setattr(SourceFile, "read", change_after)
    result = lab.send(lab.job())
    now = local_state(os.lstat(lab.file))
    assert isinstance(result, Sent), result
    assert (result.record.acked, result.record.crc) == (len(before), zlib.crc32(before))
    assert result.record.sha256 == hashlib.sha256(before).digest()
    action = decide(now, None, result.record, growing=False, rest_s=100.0, waited_s=100.0)
    assert isinstance(action, ReplaceFile if changes else UpToDate)


def test_a_row_that_tells_of_another_size_than_was_sent_is_sent_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 1000)
    result = lab.send(lab.job())
    assert isinstance(result, Sent)
    record = replace(result.record, acked=400)
    local = local_state(os.lstat(lab.file))
    assert isinstance(decide(local, None, record, growing=False, rest_s=100.0, waited_s=9.0), ReplaceFile)


class Grown:
    """A log of the user's own of which the master has the first part."""

    def __init__(self, folder: Path) -> None:
        self.lab = Lab(folder, 0)
        self.path = b"log/task/2026/11/21/09-30-01-000001_10.0.0.5_x/log.txt"
        self.file = self.lab.root / os.fsdecode(self.path)
        self.there = self.lab.master / os.fsdecode(self.path)
        self.file.parent.mkdir(parents=True)
        self.file.write_bytes(b"0123456789\n" * 5000)
        self.record = self.send(ReplaceFile(55_000, cut=True, grows=True), None)

    def send(
        self, action: ReplaceFile | Append, record: SentRecord | None, attempts: tuple[SendAttempt, ...] = ()
    ) -> SentRecord:
        item, _, name = self.path.rpartition(b"/")
        due = Due(Key(1, name), self.path, "log", item, False, 1, 0, 0, 0.0, attempts, record)
        temp = item + b"/.rla-tmp-2"
        result = self.lab.send(SendJob(due, action, temp, local=local_state(os.lstat(self.file))))
        assert isinstance(result, Sent), result
        return result.record

    def change(self, path: Path) -> None:
        """Other bytes in the middle, of the same size."""
        with path.open("r+b") as file:
            file.seek(20_000)
            file.write(b"XXXX")

    def grow(self) -> None:
        with self.file.open("ab") as file:
            file.write(b"more\n")


def test_nothing_is_appended_to_a_file_whose_middle_has_changed(tmp_path: Path) -> None:
    grown = Grown(tmp_path)
    grown.change(grown.file)
    grown.grow()
    sent = grown.send(Append(55_000, 55_005), grown.record)
    assert grown.there.read_bytes() == grown.file.read_bytes()
    assert sent.crc == zlib.crc32(grown.file.read_bytes())


def test_an_append_whose_beginning_is_as_it_was_sent_stays_one(tmp_path: Path) -> None:
    grown = Grown(tmp_path)
    inode = grown.there.stat().st_ino
    grown.grow()
    sent = grown.send(Append(55_000, 55_005), grown.record)
    assert grown.there.read_bytes() == grown.file.read_bytes()
    assert (grown.there.stat().st_ino, sent.sha256, sent.crc) == (
        inode,
        None,
        zlib.crc32(grown.file.read_bytes()),
    )


@pytest.mark.parametrize("tried", [False, True], ids=["first try", "after a try of unknown outcome"])
@pytest.mark.parametrize("owned", [False, True], ids=["the user's own", "the agent's"])
def test_what_somebody_wrote_into_the_masters_file_is_set_aside(
    tmp_path: Path, *, owned: bool, tried: bool
) -> None:
    """Of the same size; only its time tells."""
    grown = Grown(tmp_path)
    grown.change(grown.there)
    os.utime(grown.there, (1_700_000_000, 1_700_000_000))
    grown.grow()
    attempts = (SendAttempt(55_005, None),) if tried else ()
    with pytest.raises(AssertionError, match="not there"):  # set aside: it is as if never sent
        grown.send(Append(55_000, 55_005, owned=owned), grown.record, attempts)
    (aside,) = grown.there.parent.glob("log.txt.kept-*")
    assert b"XXXX" in aside.read_bytes()
    grown.send(ReplaceFile(55_005, grows=True), None)
    assert grown.there.read_bytes() == grown.file.read_bytes()
