"""Syncing over several channels of one connection, and with a server that allows few or none."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.replication_lab import Sshd, random_bytes

from rla_agent.replicate.backend import sftp_fsync, sftp_sync_behind, sftp_wire
from rla_agent.replicate.backend.errors import LinkError
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.sftp import SftpSession
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.ssh_connection import open_sftp
from rla_agent.replicate.backend.ssh_login import Login
from rla_agent.replicate.backend.upload import Upload

SFTP_SERVERS = [
    path
    for path in (
        "/usr/lib/openssh/sftp-server",
        "/usr/libexec/openssh/sftp-server",
        "/usr/lib/ssh/sftp-server",
    )
    if os.path.exists(path)
]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[SftpSession, Path]]]:
    """`start(*lines)`: a session at a server with these lines in its configuration, and its root."""
    opened: list[tuple[SftpSession, Sshd]] = []

    def start(*lines: str, sftp: str = "internal-sftp") -> tuple[SftpSession, Path]:
        server = Sshd(tmp_path / "sshd", *lines, sftp=sftp).start()
        login = Login(
            server.address,
            server.address,
            server.port,
            "root",
            host_key=server.fingerprint(),
            key_files=(server.folder / "user",),
        )
        opened.append((open_sftp(login, str(server.root)), server))
        return opened[-1][0], server.root

    yield start
    for session, server in opened:
        session.close()
        server.stop()


def batch(number: int, files: int = 64) -> list[SmallFile]:
    """Files of 4 KiB with names of their own."""
    names = [b"%d-%d" % (number, n) for n in range(files)]
    return [
        SmallFile(name, b".rla-tmp-" + name, random_bytes(4096, n), 1, None, lambda: True)
        for n, name in enumerate(names)
    ]


def put(session: SftpSession, root: Path, batches: int = 4) -> None:
    for number in range(batches):
        files = batch(number)
        for file, result in zip(files, session.put_many(files), strict=True):
            assert isinstance(result, RemoteStat), result
            assert result.synced
            assert (root / file.path.decode()).read_bytes() == file.data


def put_few(session: SftpSession, root: Path) -> None:
    (file,) = batch(99, 1)
    (result,) = session.put_many([file])
    assert isinstance(result, RemoteStat)
    assert (root / file.path.decode()).exists()


def test_many_small_files_are_synced_over_several_channels(
    start: Callable[..., tuple[SftpSession, Path]],
) -> None:
    session, root = start()
    put(session, root)
    assert len(session._channels._wires) == sftp_fsync.CHANNELS
    session._channels._spread_at -= sftp_fsync.REST_S + 1
    put_few(session, root)
    assert len(session._channels._wires) == 1


@pytest.mark.parametrize("allowed", [1, 2])
def test_a_server_that_allows_few_channels(
    start: Callable[..., tuple[SftpSession, Path]], allowed: int
) -> None:
    session, root = start(f"MaxSessions {allowed}")
    put(session, root)
    assert len(session._channels._wires) == allowed


def send_large(session: SftpSession, root: Path) -> list[int]:
    """Send a large file; how much of it was synced, as it was told meanwhile."""
    data = random_bytes(12 << 20)
    synced: list[int] = []
    job = Upload(
        b"big",
        b".rla-tmp-big",
        1,
        None,
        lambda: True,
        lambda at, count: data[at : at + count],
        len(data),
        0,
        lambda _: None,
        synced=synced.append,
    )
    assert session.upload(job).synced
    assert (root / "big").read_bytes() == data
    assert synced == sorted(synced)
    assert not synced or 0 < synced[0] <= synced[-1] <= len(data)
    return synced


@pytest.mark.parametrize("lines", [(), ("MaxSessions 1",)])
def test_a_large_file_is_synced_while_it_is_sent(
    start: Callable[..., tuple[SftpSession, Path]], monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sftp_sync_behind, "SYNC_BYTES", 1 << 20)
    assert len(send_large(*start(*lines))) > 1


def test_a_server_that_syncs_only_what_is_open_for_writing(
    start: Callable[..., tuple[SftpSession, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sftp_sync_behind, "SYNC_BYTES", 1 << 20)
    session, root = start()
    beside = session._channels._one_more()
    assert beside is not None
    refused = sftp_wire.Reply(sftp_wire.STATUS, struct.pack(">I", sftp_wire.PERMISSION_DENIED))
    really = beside.wait_long
    monkeypatch.setattr(beside, "wait_long", lambda *args: (really(*args), refused)[1])
    with monkeypatch.context() as patched:
        patched.setattr(session._channels, "sync_folders", set)  # on that channel perhaps
        assert send_large(session, root) == []


@pytest.mark.skipif(not SFTP_SERVERS, reason="needs OpenSSH's sftp-server as a program")
def test_a_server_that_refuses_a_second_sftp(
    start: Callable[..., tuple[SftpSession, Path]], tmp_path: Path
) -> None:
    """By ending it, where sshd has let the channel itself through."""
    program = tmp_path / "one-sftp"
    program.write_text(f"#!/bin/sh\nmkdir {tmp_path}/taken 2>/dev/null || exit 1\nexec {SFTP_SERVERS[0]}\n")
    program.chmod(0o755)
    session, root = start(sftp=str(program))
    put(session, root)
    assert session._channels._most == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [(sftp_wire.FAILURE, None), (sftp_wire.PERMISSION_DENIED, False), (sftp_wire.OK, True)],
)
def test_a_disk_that_gives_an_error_is_told_from_one_that_cannot_be_asked(
    start: Callable[..., tuple[SftpSession, Path]],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    said: bool | None,
) -> None:
    session, root = start()
    (root / "f").write_bytes(b"f")
    really, answers = session._wire.wait_long, [status, sftp_wire.OK]  # of the file and of its folder

    def wait(number: int, ask: Callable[[], None]) -> sftp_wire.Reply:
        really(number, ask)
        return sftp_wire.Reply(sftp_wire.STATUS, struct.pack(">I", answers.pop(0)))

    monkeypatch.setattr(session._wire, "wait_long", wait)
    assert session.sync([b"f"]) == [said]


def test_a_slow_disk_does_not_count_as_a_slow_link(
    start: Callable[..., tuple[SftpSession, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sftp_wire, "SLOW_REPLY_S", -1.0)
    monkeypatch.setattr(sftp_wire, "QUICK_REPLY_S", -1.0)
    session, _ = start()
    over, look = session._wire, sftp_wire.request(sftp_wire.LSTAT, b".")
    over.window_bytes = before = sftp_wire.MAX_WINDOW_BYTES
    slow, behind = over.submit(look, syncs=True), over.submit(look)
    over.wait(slow)
    over.wait(behind)
    assert over.window_bytes == before
    over.call(look)
    assert over.window_bytes == before // 2


def test_a_sync_may_take_longer_than_any_other_answer(
    start: Callable[..., tuple[SftpSession, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers, its disk is slow; once the server is silent, too, that is noticed."""
    monkeypatch.setattr(sftp_wire, "ASK_AFTER_S", 0.1)
    monkeypatch.setattr(sftp_wire, "ANSWER_S", 0.5)
    asked = 0
    session, _ = start()

    def ask() -> None:
        nonlocal asked
        asked += 1
        session._channels._ask_whether_alive()
        if asked == 3:
            raise LinkError("talk to", b"", "the test has seen enough")

    number = session._wire.submit(sftp_wire.request(sftp_wire.LSTAT, b"."))
    session._wire.flush()
    session._wire.wait(number)
    session._wire._waiting[99] = (time.monotonic(), 0, 0)  # a request whose answer does not come
    with pytest.raises(LinkError, match="seen enough"):
        session._wire.wait_long(99, ask)
    assert asked == 3
    with closing(session._transport):
        pass
    with pytest.raises(LinkError):
        session._channels._ask_whether_alive()
    assert not session.alive
