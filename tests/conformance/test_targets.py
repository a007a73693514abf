"""One suite over every replication target: the rules of rla_agent/replicate/backend/session.py."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from support.bucket_lab import KEYS, BucketPath, S3Server, opened
from support.replication_lab import NO_EXTENSIONS, Sshd, random_bytes
from support.sharded_folders import check_whole, identity
from support.spread_saves import FOLDER, Machine
from support.waiting import wait_until

from rla_agent.replicate.backend import continued_upload, sftp_wire
from rla_agent.replicate.backend.errors import (
    ConflictError,
    DeniedError,
    MissingError,
    NoRootError,
    SourceChangedError,
    TargetError,
    TransientError,
)
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.remote_stat import Probe, RemoteStat, StatWithParts, Twin
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.ssh_connection import open_sftp
from rla_agent.replicate.backend.ssh_login import Login
from rla_agent.replicate.backend.upload import Upload
from rla_agent.replicate.target_config import backend_of
from rla_agent.replicate.worker.sharded_master import NO_RENAME
from rla_client.config.schema import PROTOCOLS, RemoteSetting

Opened = tuple[TargetSession, Path]


class Traits(NamedTuple):
    """What the suite expects of a target."""

    protocol: str  # in the configuration; one of those that share a session
    syncs: bool  # what it acknowledged as synced is on its disk
    links: bool  # a twin costs no content
    tells_modes: bool = True


TARGETS = {
    "sftp": Traits("sftp", syncs=True, links=True),
    "sftp-plain": Traits("sftp", syncs=False, links=False),
    "folder": Traits("folder", syncs=True, links=True),
    "ftp": Traits("ftp", syncs=False, links=False, tells_modes=False),
    "bucket": Traits("s3", syncs=False, links=False),
}
COME_AND_GO = """
import pathlib, sys
while True:
    for name in range(100):
        (pathlib.Path(sys.argv[1]) / str(name)).touch()
    for name in range(100):
        (pathlib.Path(sys.argv[1]) / str(name)).unlink()
"""


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = Sshd(tmp_path_factory.mktemp("sshd")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def plain_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A server without any extension, as on a small NAS."""
    server = Sshd(tmp_path_factory.mktemp("plain"), sftp=NO_EXTENSIONS).start()
    yield server
    server.stop()


def login(server: Sshd) -> Login:
    return Login(
        server.address,
        server.address,
        server.port,
        "root",
        host_key=server.fingerprint(),
        key_files=(server.folder / "user",),
    )


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture
def open_bucket_target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """An empty bucket; what is tested of permissions and links does not concern it."""
    if request.node.get_closest_marker("of_file_systems"):
        pytest.skip("a bucket has neither permissions nor links")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = server.bucket()
    return opened(server, bucket), BucketPath(server, bucket)  # type: ignore[return-value]


def test_each_backend_is_tested() -> None:
    tested = {backend_of(RemoteSetting(file_transfer_protocol=one.protocol)) for one in TARGETS.values()}
    assert {backend_of(RemoteSetting(file_transfer_protocol=name)) for name in PROTOCOLS} == tested


@pytest.fixture
def traits(request: pytest.FixtureRequest) -> Traits:
    return TARGETS[request.node.callspec.params["target"]]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """A session and its root."""
    session: TargetSession
    root = tmp_path / "root"
    root.mkdir()
    if request.param == "bucket":
        session, root = request.getfixturevalue("open_bucket_target")
    elif request.param == "folder":
        session = FolderSession(str(root))
    elif request.param == "ftp":
        if importlib.util.find_spec("rla_agent.replicate.backend.ftp") is None:
            pytest.skip("no ftp target")
        session = request.getfixturevalue("open_ftp_target")(root)
    else:
        name = "plain_sshd" if request.param == "sftp-plain" else "sshd"
        session = open_sftp(login(request.getfixturevalue(name)), str(root))
    yield session, root
    session.close()


@pytest.fixture
def open_ftp_target() -> Iterator[Callable[[Path], TargetSession]]:
    from support.ftp_server import FtpServer

    from rla_agent.replicate.backend.ftp import FtpSession

    servers = []

    def start(root: Path) -> TargetSession:
        server = FtpServer(root)
        servers.append(server)
        return FtpSession(server.connect(), "")

    yield start
    for server in servers:
        server.close()


def in_bucket(root: object) -> bool:
    return isinstance(root, BucketPath)


def small(path: bytes, data: bytes, expect: RemoteStat | None = None, *, unchanged: bool = True) -> SmallFile:
    temp = path.rpartition(b"/")[0] + b"/.rla-tmp-" + random_bytes(6, len(data)).hex().encode()
    return SmallFile(path, temp.lstrip(b"/"), data, 1_700_000_000, expect, lambda: unchanged)


def upload(path: bytes, data: bytes, expect: RemoteStat | None = None, start: int = 0) -> Upload:
    return Upload(
        path,
        b".rla-tmp-large",
        1_700_000_001,
        expect,
        lambda: True,
        lambda at, count: data[at : at + count],
        len(data),
        start,
        lambda _: None,
    )


@pytest.mark.slow
def test_small_files_arrive_whole(target: Opened) -> None:
    session, root = target
    session.make_folders([b"a/b", b"a/c"])
    files = [small(b"a/b/%d" % n, random_bytes(n * 517, n)) for n in range(40)]
    files.append(small(b"a/c/empty", b""))
    results = session.put_many(files)
    for file, result in zip(files, results, strict=True):
        assert result == RemoteStat(len(file.data), 1_700_000_000)
        assert (root / file.path.decode()).read_bytes() == file.data
        assert session.stat(file.path) == result
    assert not [name for name in root.rglob("*") if ".rla-tmp" in name.name]


def test_one_bad_file_spoils_no_other(target: Opened) -> None:
    session, root = target
    session.make_folders([b"a"])
    (root / "a" / "theirs").write_bytes(b"theirs")
    results = session.put_many(
        [
            small(b"a/one", b"1"),
            small(b"a/theirs", b"ours!!!"),
            small(b"nowhere/x", b"xx"),
            small(b"a/changed", b"333", unchanged=False),
            small(b"a/two", b"22"),
        ]
    )
    kinds = [type(result) for result in results]
    assert kinds == [RemoteStat, ConflictError, MissingError, SourceChangedError, RemoteStat]
    assert sorted(path.name for path in (root / "a").iterdir()) == ["one", "theirs", "two"]
    assert (root / "a" / "theirs").read_bytes() == b"theirs"


def test_a_file_of_ones_own_replaces_whatever_is_there(target: Opened) -> None:
    session, root = target
    session.make_folders([b"status"])
    file = small(b"status/box.json", b"first")
    for data in (b"first", b"second, longer"):
        state = session.put_own(replace(file, data=data))
        assert state == RemoteStat(len(data), 1_700_000_000) == session.stat(file.path)
        assert (root / "status" / "box.json").read_bytes() == data
    (root / "status" / "box.json").write_bytes(b"somebody else's")
    (root / "status" / file.temp.decode().rpartition("/")[2]).write_bytes(b"of a try that was killed")
    session.put_own(replace(file, data=b"third"))
    assert (root / "status" / "box.json").read_bytes() == b"third"
    assert session.stat(file.path) == RemoteStat(5, 1_700_000_000)


def test_a_file_is_replaced_only_as_it_was_left(target: Opened) -> None:
    session, root = target
    (first,) = session.put_many([small(b"f", b"first")])
    assert isinstance(first, RemoteStat)
    (second,) = session.put_many([small(b"f", b"second version", first)])
    assert isinstance(second, RemoteStat)
    assert (root / "f").read_bytes() == b"second version"
    assert isinstance(session.put_many([small(b"f", b"third", first)])[0], ConflictError)
    with pytest.raises(ConflictError) as caught:
        session.upload(upload(b"f", b"third", first))
    assert caught.value.found == second
    assert (root / "f").read_bytes() == b"second version"


def test_a_large_file_goes_on_where_it_stopped(target: Opened) -> None:
    session, root = target
    data = random_bytes(3_000_001)
    (root / ".rla-tmp-large").write_bytes(data[:1_234_567])
    before = session.written_bytes
    assert session.upload(upload(b"big", data, start=1_234_567)) == RemoteStat(len(data), 1_700_000_001)
    assert (root / "big").read_bytes() == data
    if in_bucket(root):
        return  # it begins anew, and has no temp names
    assert session.written_bytes - before < 1.05 * (len(data) - 1_234_567) + 1000
    assert not (root / ".rla-tmp-large").exists()


@pytest.mark.parametrize("left", [b"", b"short", b"zeros"])
def test_what_a_power_cut_left_of_a_large_file_is_not_continued(target: Opened, left: bytes) -> None:
    session, root = target
    if in_bucket(root):
        pytest.skip("it begins anew, and has no temp names")
    data = random_bytes(3_000_001)
    contents = {b"": b"", b"short": data[:1_000_000], b"zeros": data[:1_000_000] + bytes(1_000_000)}
    (root / ".rla-tmp-large").write_bytes(contents[left])
    job = upload(b"big", data, start=2_000_000)
    assert session.upload(replace(job, sure=min(500_000, len(contents[left])))).size == len(data)
    assert (root / "big").read_bytes() == data
    assert not (root / ".rla-tmp-large").exists()


@pytest.mark.parametrize("hole", [600_000, 1_200_000])
def test_no_hole_that_a_power_cut_left_in_a_large_file_gets_its_name(
    target: Opened, hole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, root = target
    if not session.syncs:
        pytest.skip("nobody knows what is on its disk")
    monkeypatch.setattr(continued_upload, "SYNC_BYTES", 300_000)
    data = random_bytes(3_000_001)
    (root / ".rla-tmp-large").write_bytes(data[:hole] + bytes(100_000) + data[hole + 100_000 : 2_000_000])
    job = upload(b"big", data, start=2_000_000)
    assert session.upload(replace(job, sure=500_000)).size == len(data)
    assert (root / "big").read_bytes() == data


def test_a_temp_file_that_is_gone_is_begun_anew(target: Opened) -> None:
    session, root = target
    data = random_bytes(300_000)
    assert session.upload(upload(b"big", data, start=200_000)).size == len(data)
    assert (root / "big").read_bytes() == data


@pytest.mark.slow
def test_it_says_what_is_on_its_disk(target: Opened, traits: Traits) -> None:
    session, _ = target
    syncs = traits.syncs
    assert session.syncs is syncs
    session.make_folders([b"a/b"])
    results = session.put_many([small(b"a/b/%d" % n, random_bytes(n * 517, n)) for n in range(40)])
    assert [result.synced for result in results if isinstance(result, RemoteStat)] == [syncs] * 40
    (quick,) = session.put_many([replace(small(b"a/status", b"x"), durable=False)])
    assert isinstance(quick, RemoteStat)
    assert not quick.synced
    assert session.upload(upload(b"a/big", random_bytes(300_000))).synced is syncs
    paths = [b"a/b/%d" % n for n in range(40)]
    assert session.sync([*paths, b"a/missing", b"gone/x"]) == [syncs] * 40 + [False] * 2


def test_much_is_looked_at_together(target: Opened) -> None:
    session, root = target
    session.make_folders([b"d/sub"])
    data = random_bytes(700_000)
    session.put_many([small(b"d/one", b"123456"), small(b"d/empty", b"")])
    session.upload(upload(b"d/large", data))
    (root / "d" / "sub" / "x").write_bytes(b"x")
    wanted = [
        Probe(b"d/one", ((0, 6),)),
        Probe(b"d/one", ((2, 100), (6, 1))),
        Probe(b"d/large", ((0, 400_000), (699_000, 4096))),
        Probe(b"d/missing", ((0, 1),)),
        Probe(b"d/sub", ((0, 1),)),
        Probe(b"d/empty"),
    ]
    found = [one for one in session.probe(wanted) if isinstance(one, StatWithParts)]
    assert [one.parts for one in found] == [
        (b"123456",),
        (b"3456", b""),
        (data[:400_000], data[699_000:]),
        (),
        (),
        (),
    ]
    assert [
        one.state and (one.state.kind, one.state.size) for one in found if one.state != found[4].state
    ] == [
        ("file", 6),
        ("file", 6),
        ("file", 700_000),
        None,
        ("file", 0),
    ]
    assert found[4].state is not None
    assert found[4].state.kind == "folder"


def test_a_shrunken_source_is_not_renamed(target: Opened) -> None:
    session, root = target
    data = random_bytes(500_000)
    job = upload(b"big", data)
    short = Upload(
        job.path,
        job.temp,
        job.mtime_s,
        None,
        job.unchanged,
        lambda at, count: data[at : at + count][: 400_000 - at],
        len(data),
        0,
        job.progress,
    )
    with pytest.raises(SourceChangedError):
        session.upload(short)
    assert list(root.iterdir()) == []


def test_appends_continue_and_repeat(target: Opened) -> None:
    session, root = target
    session.put_many([small(b"log", b"one\n")])
    left = session.stat(b"log")
    assert left is not None
    after = session.append(b"log", 4, [b"two\n", b"three\n"], left)
    assert (root / "log").read_bytes() == b"one\ntwo\nthree\n"
    assert after.size == 14
    # the same once more, as after a lost reply; then further
    again = session.append(b"log", 4, [b"two\n", b"three\n", b"four\n"], left)
    assert (root / "log").read_bytes() == b"one\ntwo\nthree\nfour\n"
    assert again.size == 19


def test_appends_refuse_a_foreign_file(target: Opened) -> None:
    session, root = target
    session.put_many([small(b"log", b"one\n")])
    left = session.stat(b"log")
    assert left is not None
    for content in (b"o", b"one\nlonger than what is appended"):
        (root / "log").write_bytes(content)
        session.forget_folders()  # a bucket is not looked at before each append
        with pytest.raises(ConflictError):
            session.append(b"log", 4, [b"two\n"], left)
        assert (root / "log").read_bytes() == content
    (root / "log").unlink()
    session.forget_folders()
    with pytest.raises(MissingError):
        session.append(b"log", 4, [b"two\n"], left)
    assert not (root / "log").exists()


def test_names_cannot_leave_the_root(target: Opened, tmp_path: Path) -> None:
    session, _ = target
    for name in (b"../out", b"/tmp/out", b"a/../../out", b"a//b", b".", b"x\0y", b"n" * 300):
        with pytest.raises(DeniedError):
            session.stat(name)
        with pytest.raises(DeniedError):
            session.make_folders([name])
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


@pytest.mark.parametrize(
    "name", [b"-rf", b"=cmd", b"s3:x", "\u202eright".encode(), b"a b;c", b"*?[x]", b"n" * 255]
)
def test_odd_names_are_stored_as_they_are(target: Opened, name: bytes) -> None:
    session, _ = target
    (result,) = session.put_many([small(name, b"content")])
    assert isinstance(result, RemoteStat)
    assert [entry for entry, _ in session.listing(b"")] == [name]
    assert session.read(name, 0, 100) == b"content"


def test_reading_listing_removing(target: Opened) -> None:
    session, root = target
    data = random_bytes(700_000)
    session.make_folders([b"d/e"])
    session.upload(upload(b"d/f", data))
    assert session.read(b"d/f", 0, 1_000_000) == data
    assert session.read(b"d/f", 699_990, 50) == data[-10:]
    assert session.read(b"d/f", 700_000, 50) == b""
    empty = set() if in_bucket(root) else {(b"e", "folder")}  # there while something is in it
    assert {(name, state.kind) for name, state in session.listing(b"d")} == {*empty, (b"f", "file")}
    session.rename(b"d/f", b"d/g")
    session.truncate(b"d/g", 10)
    assert (root / "d" / "g").read_bytes() == data[:10]
    for _ in range(2):
        session.remove(b"d/g")
        session.remove_folder(b"d/e")
    assert list((root / "d").iterdir()) == []
    with pytest.raises(MissingError):
        session.listing(b"d/e")
    with pytest.raises(MissingError):
        session.read(b"d/g", 0, 1)
    assert session.stat(b"d/g") is None


@pytest.mark.slow
@pytest.mark.of_file_systems
def test_a_folder_in_which_files_come_and_go_can_be_listed(target: Opened) -> None:
    session, root = target
    (root / "d").mkdir()
    (root / "d" / "stays").touch()
    changing = subprocess.Popen([sys.executable, "-c", COME_AND_GO, str(root / "d")])
    try:
        wait_until((root / "d" / "1").exists)
        for _ in range(120):
            assert b"stays" in dict(session.listing(b"d"))
    finally:
        changing.kill()
        changing.wait()


def test_rename_replaces(target: Opened) -> None:
    session, root = target
    (root / "a").write_bytes(b"new")
    (root / "b").write_bytes(b"old")
    session.rename(b"a", b"b")
    assert {path.name: path.read_bytes() for path in root.iterdir()} == {"b": b"new"}


def test_a_folder_moves_with_all_that_is_in_it(target: Opened) -> None:
    """As the trash of the master moves runs."""
    session, root = target
    session.make_folders([b"run/tb", b"trash"])
    session.put_many([small(b"run/log", b"one"), small(b"run/tb/events", b"two")])
    session.rename(b"run", b"trash/run")
    session.forget_folders()
    assert (root / "trash" / "run" / "log").read_bytes() == b"one"
    assert session.read(b"trash/run/tb/events", 0, 10) == b"two"
    assert session.stat(b"run") is None
    with pytest.raises(MissingError):
        session.rename(b"run", b"trash/run")


@pytest.mark.of_file_systems
def test_a_folder_takes_the_place_of_no_other(target: Opened) -> None:
    session, root = target
    session.make_folders([b"one/in", b"two/in"])
    session.put_many([small(b"one/in/a", b"1"), small(b"two/in/b", b"2")])
    with pytest.raises(TargetError):
        session.rename(b"one", b"two")
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert found == {"one/in/a", "two/in/b"}


@pytest.mark.slow
def test_a_save_of_several_machines_becomes_whole(target: Opened, tmp_path: Path) -> None:
    """Where a folder cannot get its name at once, it stays in parts, and that is said."""
    session, root = target
    save = identity(world=4)
    machines = [Machine(tmp_path / "a", (0, 1)), Machine(tmp_path / "b", (2, 3))]
    for order, made in ((1, save), (2, identity(epoch=2, world=4))):
        for machine in machines:
            machine.save(made, order)
            machine.send(session, made)
        words = [machine.look(session, made).waits for machine in machines]
        if not session.moves_folders:
            assert all(NO_RENAME in told for told in words)
            assert not (root / FOLDER / "checkpoint_1.dcp").exists()
            return
        assert words == ["", ""]
        assert check_whole(root / FOLDER / "checkpoint_1.dcp") == order
        assert list((root / FOLDER / ".rla-parts").iterdir()) == []
        assert all(machine.has_named(made) for machine in machines)


def test_a_twin_is_linked_where_the_target_can(target: Opened, traits: Traits) -> None:
    session, root = target
    session.make_folders([b"one", b"two"])
    data = random_bytes(30_000)
    (first,) = session.put_many([small(b"one/code.py", data)])
    assert isinstance(first, RemoteStat)
    before = session.written_bytes
    twin = Twin(b"one/code.py", first, hashlib.sha256(data).digest())
    results = session.put_many(
        [replace(small(b"two/code.py", data), twin=twin), small(b"two/other.py", b"another")]
    )
    assert [result.size for result in results if isinstance(result, RemoteStat)] == [len(data), 7]
    assert session.stat(b"two/code.py") == results[0]
    assert (root / "two" / "code.py").read_bytes() == data
    linked = session.written_bytes - before < len(data)
    assert linked == traits.links
    if not in_bucket(root):
        inodes = {(root / name / "code.py").stat().st_ino for name in ("one", "two")}
        assert (len(inodes) == 1) == linked
    assert sorted(path.name for path in (root / "two").iterdir()) == ["code.py", "other.py"]


@pytest.mark.of_file_systems
def test_a_twin_that_is_not_as_it_was_left_is_not_linked(target: Opened) -> None:
    session, root = target
    data = b"as it was sent"
    left = RemoteStat(len(data), 1_600_000_000)
    (root / "grown").write_bytes(data + b"!")
    (root / "touched").write_bytes(b"AS IT WAS SENT")
    (root / "link").symlink_to("grown")
    for number, name in enumerate((b"grown", b"touched", b"link", b"gone")):
        file = replace(small(b"new%d" % number, data), twin=Twin(name, left, b""))
        (result,) = session.put_many([file])
        assert result == session.stat(file.path)
        assert (root / f"new{number}").read_bytes() == data
    (root / "theirs").write_bytes(b"theirs")
    (kept,) = session.put_many([replace(small(b"theirs", data), twin=Twin(b"new0", _state(session), b""))])
    assert isinstance(kept, ConflictError)
    changed = replace(small(b"changed", data, unchanged=False), twin=Twin(b"new0", _state(session), b""))
    assert isinstance(session.put_many([changed])[0], SourceChangedError)
    names = {path.name for path in root.iterdir()}
    assert names == {"grown", "touched", "link", "new0", "new1", "new2", "new3", "theirs"}


def _state(session: TargetSession) -> RemoteStat:
    found = session.stat(b"new0")
    assert found is not None
    return found


MODES = (0o600, 0o640, 0o644, 0o660, 0o664, 0o444, 0o400, 0o700, 0o755, 0o775)


def bits(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.of_file_systems
def test_files_have_the_modes_that_they_are_sent_with(target: Opened) -> None:
    """The server's umask takes nothing and adds nothing; a second version changes them."""
    session, root = target
    session.make_folders([b"a"])
    for turn, modes in enumerate((MODES, MODES[::-1])):
        files = [
            replace(small(b"a/%d" % n, b"x" * (n + turn), session.stat(b"a/%d" % n)), mode=mode)
            for n, mode in enumerate(modes)
        ]
        assert all(isinstance(result, RemoteStat) for result in session.put_many(files))
        assert [bits(root / "a" / str(n)) for n in range(len(modes))] == list(modes)
    for mode in MODES:
        job = replace(upload(b"large", random_bytes(300_000), session.stat(b"large")), mode=mode)
        session.upload(job)
        assert bits(root / "large") == mode


@pytest.mark.of_file_systems
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o440])
@pytest.mark.parametrize("start", [0, 150_000])
def test_a_file_is_never_more_open_than_it_will_be(target: Opened, mode: int, start: int) -> None:
    """Not while it is written either, nor where a part is there that all can read."""
    session, root = target
    temp, data, seen = root / ".rla-tmp-large", random_bytes(3_000_000), set()
    if start:
        temp.write_bytes(data[:start])
        temp.chmod(0o644)

    def read(at: int, count: int) -> bytes:
        if at > start:  # on its way: whatever is there was written by us
            seen.add(bits(temp))
        return data[at : at + count]

    session.upload(replace(upload(b"large", data, start=start), mode=mode, read=read))
    assert seen
    assert not any(found & ~mode & 0o077 for found in seen)
    assert bits(root / "large") == mode


@pytest.mark.of_file_systems
def test_special_bits_do_not_travel(target: Opened) -> None:
    session, root = target
    session.make_folders([b"a"], lambda _: (0o700, False))
    session.put_many([replace(small(b"a/f", b"1"), mode=0o755)])
    assert (bits(root / "a"), bits(root / "a" / "f")) == (0o700, 0o755)
    session.set_modes([(b"a/f", 0o750)])
    assert bits(root / "a" / "f") == 0o750


@pytest.mark.of_file_systems
def test_folders_have_the_modes_that_they_are_made_with(target: Opened) -> None:
    session, root = target
    modes = {b"p": 0o700, b"p/q": 0o775, b"p/q/r": 0o750, b"w": 0o777}
    session.make_folders([b"p/q/r", b"w"], lambda name: (modes[name], False))
    assert {name: bits(root / name.decode()) for name in modes} == modes
    session.make_folders([b"s"], lambda _: (0o700, True))
    assert bits(root / "s") == 0o700


@pytest.mark.of_file_systems
def test_folders_that_are_there_only_lose(target: Opened, traits: Traits) -> None:
    session, root = target
    before = {"open": 0o755, "closed": 0o700, "lab": 0o2775, "writable": 0o775}
    for name, mode in before.items():
        (root / name).mkdir()
        (root / name).chmod(mode)
    session.make_folders([name.encode() for name in before], lambda _: (0o750, True))
    found = {name: bits(root / name) for name in before}
    if not traits.tells_modes:
        assert found == before
    else:
        assert found == {"open": 0o750, "closed": 0o700, "lab": 0o2770, "writable": 0o770}


@pytest.mark.parametrize(("umask", "made"), [("0002", 0o775), ("0022", 0o755)])
def test_the_servers_umask_says_whether_groups_write_in_folders_that_runs_share(
    tmp_path: Path, umask: str, made: int
) -> None:
    """As docs/how-to/master.md has it for nodes with a user each; a private one stays private."""
    server = Sshd(tmp_path / "sshd", sftp=f"internal-sftp -u {umask}").start()
    try:
        session = open_sftp(login(server), str(server.root))
        session.make_folders([b"log"], lambda _: (0o755, True))
        session.make_folders([b"private"], lambda _: (0o700, True))
        session.make_folders([b"run"], lambda _: (0o755, False))
        session.close()
    finally:
        server.stop()
    assert [bits(server.root / name) for name in ("log", "private", "run")] == [made, 0o700, 0o755]


@pytest.mark.of_file_systems
def test_modes_are_set_afterwards(target: Opened, traits: Traits) -> None:
    session, root = target
    session.make_folders([b"d"])
    (root / "f").write_bytes(b"1")
    (root / "f").chmod(0o644)
    (root / "outside").write_bytes(b"1")
    (root / "outside").chmod(0o640)
    (root / "link").symlink_to("outside")
    assert session.set_modes([(b"d", 0o700), (b"f", 0o600)]) == [None, None]
    assert (bits(root / "d"), bits(root / "f")) == (0o700, 0o600)
    session.set_modes([(b"d", 0o755), (b"f", 0o644)], only_less=True)
    assert (bits(root / "d"), bits(root / "f")) == (0o700, 0o600)
    session.set_modes([(b"d", 0o755), (b"f", 0o664)])
    assert (bits(root / "d"), bits(root / "f")) == (0o755, 0o664)
    if not traits.tells_modes:
        return
    state = session.stat(b"f")
    assert state is not None
    assert state.mode == 0o664
    assert dict(session.listing(b""))[b"f"].mode == 0o664
    session.set_modes([(b"link", 0o666)])
    assert bits(root / "outside") == 0o640
    (missing,) = session.set_modes([(b"none", 0o600)])
    assert isinstance(missing, MissingError)


@pytest.mark.of_file_systems
def test_what_grows_keeps_its_mode(target: Opened) -> None:
    session, root = target
    (left,) = session.put_many([replace(small(b"log", b"one\n"), mode=0o660)])
    assert isinstance(left, RemoteStat)
    session.append(b"log", 4, [b"two\n"], left)
    assert bits(root / "log") == 0o660


@pytest.mark.of_file_systems
def test_a_twin_of_another_mode_is_not_linked(target: Opened) -> None:
    session, root = target
    (first,) = session.put_many([replace(small(b"one", b"content"), mode=0o644)])
    assert isinstance(first, RemoteStat)
    twin = Twin(b"one", first, hashlib.sha256(b"content").digest())
    session.put_many([replace(small(b"two", b"content"), twin=twin, mode=0o600)])
    assert (bits(root / "one"), bits(root / "two")) == (0o644, 0o600)
    assert sorted(path.name for path in root.iterdir()) == ["one", "two"]


@pytest.mark.parametrize("denied", ["fsetstat", "setstat,fsetstat"])
def test_a_server_that_sets_no_modes_keeps_what_is_private(
    tmp_path: Path, denied: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They go with the request that makes the file; the server's umask may only take from them."""
    server = Sshd(tmp_path / "sshd", sftp=f"internal-sftp -P {denied}").start()
    try:
        session = open_sftp(login(server), str(server.root))
        session.make_folders([b"a"], lambda _: (0o700, False))
        for turn in range(2):
            modes = (0o600, 0o640, 0o644)
            files = [replace(small(b"a/%d%d" % (turn, mode), b"1" * mode), mode=mode) for mode in modes]
            results = session.put_many(files)
            assert results == [session.stat(file.path) for file in files]
            assert [bits(server.root / file.path.decode()) for file in files] == list(modes)
            path = b"large%d" % turn
            result = session.upload(replace(upload(path, random_bytes(300_000)), mode=0o600))
            assert result == session.stat(path)
            assert bits(server.root / path.decode()) == 0o600
        assert bits(server.root / "a") == 0o700
        session.close()
    finally:
        server.stop()
    assert len([record for record in caplog.records if "permissions" in record.message]) == 1


def test_a_root_that_is_not_there_is_not_made(sshd: Sshd, tmp_path: Path) -> None:
    root = tmp_path / "no" / "such"
    with pytest.raises(NoRootError, match="does not exist") as caught:
        open_sftp(login(sshd), str(root))
    assert "rla-agent trust 127.0.0.1" in caught.value.hint
    with pytest.raises(NoRootError):
        FolderSession(str(root))
    assert not root.parent.exists()
    open_sftp(login(sshd), str(root), make_root=True).close()
    assert root.is_dir()


@pytest.mark.slow
def test_a_size_that_the_server_does_not_tell_is_none(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = sftp_wire.Wire.wait

    def without_size(wire: sftp_wire.Wire, number: int) -> sftp_wire.Reply:
        reply = wait(wire, number)
        flags = int.from_bytes(reply.body[:4], "big")
        if reply.kind != sftp_wire.ATTRS or not flags & 1:
            return reply
        return sftp_wire.Reply(reply.kind, (flags - 1).to_bytes(4, "big") + reply.body[12:])

    session = open_sftp(login(sshd), str(tmp_path))
    monkeypatch.setattr(sftp_wire.Wire, "wait", without_size)
    for data in (b"", b"content"):
        with pytest.raises(TransientError, match=f"holds None bytes of {len(data)}"):
            session.upload(upload(b"file", data))
    session.close()
    assert list(tmp_path.iterdir()) == []
