"""The store of code: one copy of each content, and nothing outside of the item."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rla_agent.jobs.code_job import parse_code, run_code
from rla_agent.jobs.code_store import sweep_objects
from rla_agent.jobs.outcome import JobOutcome, JobResult
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.filesystem.atomic_write import OLD_TEMP_S, TEMP_PREFIX
from rla_client.contract.job.code_blob import BLOB_MAGIC
from rla_client.contract.spool.protocol import pack

Run = Callable[..., JobResult]


def blob_of(files: list[tuple[Any, bytes]], folder: Path) -> str:
    index = pack([[name, len(data)] for name, data in files])
    name = f"code-{secrets.token_hex(4)}"
    body = BLOB_MAGIC + b"".join(data for _, data in files)
    (folder / name).write_bytes(body + index + len(index).to_bytes(4, "little") + BLOB_MAGIC)
    return name


@pytest.fixture
def run(tmp_path: Path) -> Run:
    blobs = tmp_path / "blobs"
    blobs.mkdir()

    def run(files: list[tuple[Any, bytes]], item: str = "item") -> JobResult:
        (tmp_path / item).mkdir(exist_ok=True)
        return run_code(blob_of(files, blobs), blobs, tmp_path / item, tmp_path)

    return run


def disk_bytes(folder: Path) -> int:
    inodes = {(found.st_dev, found.st_ino): found.st_size for found in map(os.lstat, folder.rglob("*"))
              if stat.S_ISREG(found.st_mode)}  # fmt: skip
    return sum(inodes.values())


@pytest.mark.slow
def test_many_runs_of_one_repository_cost_one_copy(tmp_path: Path, run: Run) -> None:
    files = [(f"p{number % 5}/m{number}.py", os.urandom(3000)) for number in range(100)]
    for number in range(50):
        changed = [*files[1:], ("p0/m0.py", b"run %d" % number)]
        assert run(changed, f"item{number}").outcome is JobOutcome.WRITTEN

    assert disk_bytes(tmp_path / "code" / ".objects") <= 1.2 * 100 * 3000
    assert disk_bytes(tmp_path) - disk_bytes(tmp_path / "blobs") <= 1.2 * 100 * 3000
    assert (tmp_path / "item7" / "p0" / "m0.py").read_bytes() == b"run 7"
    assert (tmp_path / "item7" / "p1" / "m1.py").read_bytes() == files[1][1]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("item*/**/*.py")}
    assert modes == {0o444}


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_thousand_runs_of_a_five_megabyte_repository(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """What du tells of the files' blocks, each inode once; the names themselves are told, not judged."""
    files = [(f"pkg{number % 20}/m{number}.py", os.urandom(25_000)) for number in range(200)]
    (tmp_path / "one").mkdir()
    for name, data in files:
        path = tmp_path / "one" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    for number in range(1000):
        changed = [("pkg0/m0.py", b"seed = %d" % number), *files[1:]] if number % 10 == 0 else files
        assert run(changed, f"item{number:04d}").outcome is JobOutcome.WRITTEN
        for blob in (tmp_path / "blobs").iterdir():
            blob.unlink()
    os.sync()
    stored = [tmp_path / "code" / ".objects", *sorted(tmp_path.glob("item*"))]
    found = du(*stored) - du(*stored, folders_only=True)
    one = du(tmp_path / "one") - du(tmp_path / "one", folders_only=True)
    with capsys.disabled():
        print(  # noqa: T201 - a figure for docs/reliability.md
            f"\n1,000 runs: {found / one:.3f} x one copy; names take {du(*stored, folders_only=True)} bytes"
        )
    assert found <= 1.2 * one
    for item in tmp_path.glob("item*"):
        shutil.rmtree(item)
    sweep_objects(tmp_path, time.time())
    assert list((tmp_path / "code" / ".objects").iterdir()) == []


def du(*folders: Path, folders_only: bool = False) -> int:
    """Bytes of the blocks that these take together, each inode once."""
    inodes: dict[tuple[int, int], int] = {}
    for top in folders:
        for path in (top, *top.rglob("*")):
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) or not folders_only:
                inodes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(inodes.values())


def test_contents_are_freed_when_no_run_uses_them(tmp_path: Path, run: Run) -> None:
    run([("a.py", b"shared"), ("b.py", b"only in one")], "one")
    run([("a.py", b"shared")], "two")

    assert sweep_objects(tmp_path, time.time()) == 0
    shutil.rmtree(tmp_path / "one")
    assert sweep_objects(tmp_path, time.time()) == len(b"only in one")
    assert (tmp_path / "two" / "a.py").read_bytes() == b"shared"
    shutil.rmtree(tmp_path / "two")
    assert sweep_objects(tmp_path, time.time()) == len(b"shared")
    assert list((tmp_path / "code" / ".objects").iterdir()) == []
    assert sweep_objects(tmp_path / "nowhere", time.time()) == 0


def test_a_job_done_twice_leaves_the_same_item(tmp_path: Path, run: Run) -> None:
    files = [("a.py", b"1"), ("p/b.py", b"2")]
    run(files)
    before = {path: path.stat().st_ino for path in (tmp_path / "item").rglob("*")}

    assert run(files).outcome is JobOutcome.WRITTEN
    assert {path: path.stat().st_ino for path in (tmp_path / "item").rglob("*")} == before


def test_a_file_that_is_there_stays(tmp_path: Path, run: Run) -> None:
    (tmp_path / "item").mkdir()
    (tmp_path / "item" / "parameter.yaml").write_bytes(b"of the run")

    assert run([("parameter.yaml", b"of the project")]).outcome is JobOutcome.WRITTEN
    assert (tmp_path / "item" / "parameter.yaml").read_bytes() == b"of the run"


@pytest.mark.parametrize("damage", [b"", b"sHared", b"shared and more"])
def test_a_damaged_content_is_replaced_not_spread(tmp_path: Path, run: Run, damage: bytes) -> None:
    run([("a.py", b"shared")], "one")
    (stored,) = [path for path in (tmp_path / "code" / ".objects").rglob("*") if path.is_file()]
    stored.chmod(0o644)
    stored.write_bytes(damage)

    run([("a.py", b"shared")], "two")

    assert (tmp_path / "two" / "a.py").read_bytes() == b"shared"
    assert stored.read_bytes() == b"shared"


def test_copies_where_the_file_system_has_no_links(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    result = run([("a.py", b"1"), ("p/b.py", b"2")])

    assert result.outcome is JobOutcome.WRITTEN
    assert (tmp_path / "item" / "a.py").read_bytes() == b"1"
    found = (tmp_path / "item" / "p" / "b.py").stat()
    assert (found.st_nlink, stat.S_IMODE(found.st_mode)) == (1, 0o444)


@pytest.mark.slow
def test_more_runs_than_an_inode_has_names(tmp_path: Path, run: Run) -> None:
    run([("__init__.py", b"")], "first")
    (stored,) = [path for path in (tmp_path / "code" / ".objects").rglob("*") if path.is_file()]
    links = tmp_path / "links"
    links.mkdir()
    for number in range(70_000):
        try:
            os.link(stored, links / str(number))
        except OSError:
            break
    else:
        pytest.skip("this file system sets no bound to links")

    assert run([("__init__.py", b"")], "second").outcome is JobOutcome.WRITTEN
    assert (tmp_path / "second" / "__init__.py").stat().st_nlink == 2


HOSTILE = [
    "../x", "/etc/x", "a/../../x", "a//b", "", ".", "a/", "x\0y", "x\ny", "a" * 300, 7, None, b"bytes", ["a"],
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_make_nothing(tmp_path: Path, run: Run, name: Any) -> None:
    result = run([("first.py", b"x"), (name, b"x")])

    assert result.outcome is JobOutcome.FAILED
    assert list((tmp_path / "item").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} <= {"blobs", "item", "code"}


def test_links_in_the_item_are_not_followed(tmp_path: Path, run: Run) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "item").mkdir()
    (tmp_path / "item" / "p").symlink_to(outside)

    assert run([("p/a.py", b"x")]).outcome is JobOutcome.FAILED
    assert list(outside.iterdir()) == []


def test_an_item_that_is_gone_is_not_made_again(tmp_path: Path, run: Run) -> None:
    run([("a.py", b"x")])
    blobs = tmp_path / "blobs"
    shutil.rmtree(tmp_path / "item")

    result = run_code(blob_of([("a.py", b"x")], blobs), blobs, tmp_path / "item", tmp_path)

    assert result.outcome is JobOutcome.REMOVED
    assert not (tmp_path / "item").exists()


def test_a_blob_cut_short_anywhere_fails_and_names_no_file(tmp_path: Path, run: Run) -> None:
    run([])
    blobs = tmp_path / "blobs"
    job = blob_of([("a.py", b"abc"), ("p/b.py", b"defg")], blobs)
    whole = (blobs / job).read_bytes()

    for length in range(len(whole)):
        (blobs / job).write_bytes(whole[:length])
        result = run_code(job, blobs, tmp_path / "item", tmp_path)
        assert result.outcome is JobOutcome.FAILED, length
    assert list((tmp_path / "item").iterdir()) == []


def test_blobs_that_are_links_or_missing_fail(tmp_path: Path, run: Run) -> None:
    run([])
    (tmp_path / "blobs" / "link").symlink_to("/etc/passwd")

    for name in ("link", "missing"):
        result = run_code(name, tmp_path / "blobs", tmp_path / "item", tmp_path)
        assert result.outcome is JobOutcome.FAILED


@pytest.mark.parametrize(
    "fields", [None, [], {}, {"blob": "../x"}, {"blob": "a/b"}, {"blob": ".hidden"}, {"blob": 3}]
)
def test_malformed_jobs_are_refused(fields: object) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_code(fields)


PREFIX, REST = "ab", "c" * 62


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Files of the user that no run has to do with, under names that objects have."""
    folder = tmp_path / "outside"
    for below in (folder, folder / PREFIX, folder / ".objects" / PREFIX):
        below.mkdir(parents=True, exist_ok=True)
        (below / REST).write_text("mine")
        (below / "thesis.tex").write_text("mine")
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "place", ["code/.objects", f"code/.objects/{PREFIX}", f"code/.objects/{PREFIX}/{REST}"]
)
def test_no_link_in_the_store_is_followed(tmp_path: Path, outside: Path, run: Run, place: str) -> None:
    link = tmp_path / place
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / REST if place.endswith(REST) else outside)
    before = texts(outside)
    assert sweep_objects(tmp_path, time.time() + 1e6) == 0
    data = secrets.token_bytes(8)
    while not hashlib.sha256(data).hexdigest().startswith(PREFIX):
        data = secrets.token_bytes(8)

    assert run([("a.py", data)]).outcome is JobOutcome.WRITTEN

    assert (tmp_path / "item" / "a.py").read_bytes() == data
    sweep_objects(tmp_path, time.time() + 1e6)
    assert texts(outside) == before


def test_only_what_is_named_as_an_object_is_swept(tmp_path: Path, outside: Path) -> None:
    objects = tmp_path / "code" / ".objects" / PREFIX
    objects.mkdir(parents=True)
    kept = ["thesis.tex", "C" * 62, "c" * 61, "c" * 63, "g" * 62, REST[:-1] + "\n", TEMP_PREFIX + "mine"]
    for name in kept:
        (objects / name).write_text("mine")
    for prefix in ("abc", "AB", "x", "zz", ".git"):
        (objects.parent / prefix).mkdir()
        (objects.parent / prefix / REST).write_text("mine")
    (objects.parent / "thesis.tex").write_text("mine")
    os.link(outside / REST, objects / ("d" * 62))
    os.mkfifo(objects / ("e" * 62))
    (objects / ("f" * 62)).mkdir()
    for name in (REST, TEMP_PREFIX + "0" * 16):
        (objects / name).write_text("nobody's")
    before = texts(objects.parent)

    assert sweep_objects(tmp_path, time.time()) == len("nobody's")  # the temp file may be in the making
    assert sweep_objects(tmp_path, time.time() + 2 * OLD_TEMP_S) == len("nobody's")

    gone = {f"{PREFIX}/{REST}", f"{PREFIX}/{TEMP_PREFIX}{'0' * 16}"}
    assert texts(objects.parent) == {name: text for name, text in before.items() if name not in gone}
    assert {"d" * 62, "e" * 62, "f" * 62} <= set(os.listdir(objects))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_is_no_object_hinders_no_job(
    tmp_path: Path, run: Run, make: Callable[[Path], None], depth: int
) -> None:
    digest = hashlib.sha256(b"shared").hexdigest()
    place = (tmp_path / "code").joinpath(*[".objects", digest[:2], digest[2:]][: depth + 1])
    place.parent.mkdir(parents=True)
    make(place)

    assert run([("a.py", b"shared")]).outcome is JobOutcome.WRITTEN

    assert (tmp_path / "item" / "a.py").read_bytes() == b"shared"


@pytest.mark.slow
def test_a_store_is_never_left_by_a_link_that_is_swapped_in(tmp_path: Path, outside: Path, run: Run) -> None:
    objects = tmp_path / "code" / ".objects"
    before = texts(outside)
    stop = threading.Event()

    def swap() -> None:
        aside, link = objects.with_name("aside"), objects.with_name("link")
        link.symlink_to(outside)
        while not stop.is_set():
            with suppress(OSError):
                objects.rename(aside)
                link.rename(objects)
                objects.rename(link)
                aside.rename(objects)

    run([("a.py", b"shared")], "first")
    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(300):
            sweep_objects(tmp_path, time.time() + 1e6)
            assert run([("a.py", b"%d" % number)], f"item{number}").outcome in set(JobOutcome)
            shutil.rmtree(tmp_path / f"item{number}")
    finally:
        stop.set()
        thread.join()
    assert texts(outside) == before


def test_a_kind_on_another_disk_has_its_store_there(tmp_path: Path, run: Run) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "code").symlink_to(tmp_path / "disk")
    run([("a.py", b"shared")])
    assert (tmp_path / "item" / "a.py").stat().st_nlink == 2
    shutil.rmtree(tmp_path / "item")
    assert sweep_objects(tmp_path, time.time()) == len(b"shared")
