"""The bucket target beyond the common suite: requests, parts, outcomes that nobody knows, errors."""

from __future__ import annotations

import importlib.util
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.azure_front import ENVIRONMENT, AzureFront
from support.bucket_lab import KEYS, OTHER, BucketPath, S3Server, opened, remote
from support.faulty_store import FAULTS, FaultyStore
from support.gcs_front import GcsFront, gcs_remote
from support.replication_lab import ITEM, random_bytes, tree
from typer.testing import CliRunner

from rla_agent.command.app import make_app
from rla_agent.replicate import fleet
from rla_agent.replicate.backend import bucket as bucket_module
from rla_agent.replicate.backend import bucket_login, bucket_store
from rla_agent.replicate.backend.bucket import BucketSession, open_bucket
from rla_agent.replicate.backend.bucket_login import bucket_name
from rla_agent.replicate.backend.bucket_parts import BucketParts
from rla_agent.replicate.backend.bucket_store import WHOLE_BYTES, Bucket, RefusedError
from rla_agent.replicate.backend.errors import (
    BlockedError,
    ConflictError,
    LinkError,
    LoginError,
    MissingError,
    NoRootError,
    SourceChangedError,
    TargetError,
    TransientError,
)
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.upload import Upload
from rla_agent.replicate.doctor_master import examine_master
from rla_agent.replicate.transfer.fetch_file import READ_BYTES, fetch
from rla_agent.replicate.transfer.pull import pull
from rla_agent.replicate.transfer.push import push
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_client.config.schema import RemoteSetting, load_config, password_variables
from rla_client.contract.errors import ConfigError

RUN = f"log/{ITEM}".encode()
pytestmark = pytest.mark.usefixtures("bucket_keys")


@pytest.fixture
def root(server: S3Server, bucket: str) -> BucketPath:
    return BucketPath(server, bucket)


@pytest.fixture
def store(server: S3Server) -> Iterator[FaultyStore]:
    made = FaultyStore(server.port)
    yield made
    made.close()


@pytest.fixture
def session(server: S3Server, bucket: str, store: FaultyStore) -> Iterator[BucketSession]:
    made = opened(server, bucket, endpoint=store.endpoint)
    yield made
    made.close()


def small(path: bytes, data: bytes, expect: RemoteStat | None = None) -> SmallFile:
    return SmallFile(path, path + b".rla-tmp-", data, 1_700_000_000, expect, lambda: True)


def put(session: BucketSession, path: bytes, data: bytes, expect: RemoteStat | None = None) -> RemoteStat:
    session.make_folders([path.rpartition(b"/")[0]])
    (result,) = session.put_many([small(path, data, expect)])
    assert isinstance(result, RemoteStat), result
    return result


def large(path: bytes, data: bytes) -> Upload:
    return Upload(
        path,
        b".rla-tmp-large",
        1_700_000_001,
        None,
        lambda: True,
        lambda at, count: data[at : at + count],
        len(data),
        0,
        lambda _: None,
    )


@pytest.mark.slow
def test_what_a_run_gets_is_one_request(session: BucketSession, store: FaultyStore, root: BucketPath) -> None:
    paths = [RUN + name for name in (b"/progress.csv", b"/log.txt", b"/tb/events.out.tfevents.1")]
    left = {path: put(session, path, b"0\n") for path in paths}
    content = dict.fromkeys(paths, b"0\n")
    for turn in range(40):
        if turn == 1:
            store.requests.clear()
        with session.together():
            for path in paths:
                row = b"%d of %d\n" % (turn, len(path))
                left[path] = session.append(path, len(content[path]), [row], left[path])
                content[path] += row
    assert len(store.requests) == 39
    assert {method for _, method, _ in store.requests} == {"PUT"}
    for path in paths:
        assert (root / path.decode()).read_bytes() == content[path]
        assert session.stat(path) == left[path]
        assert session.read(path, 5, 11) == content[path][5:16]
    below = f"some/prefix/{RUN.decode()}/.rla-parts/"
    assert all(key.startswith(below) for key in root.parts())


@pytest.mark.slow
def test_many_appends_leave_few_parts_and_compaction_none(
    session: BucketSession, root: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "DEAD_PARTS", 20)
    path = RUN + b"/progress.csv"
    left, content = put(session, path, b"a,b\n"), b"a,b\n"
    for turn in range(300):
        row = b"%d,%d\n" % (turn, turn * turn)
        left = session.append(path, len(content), [row], left)
        content += row
    assert len(root.parts()) < 60 + 20
    assert (root / path.decode()).read_bytes() == content
    session.forget_folders()  # as after a new connection: what is merged now is read back
    for turn in range(40):
        left = session.append(path, len(content), [b"%d,x\n" % turn], left)
        content += b"%d,x\n" % turn
    assert (root / path.decode()).read_bytes() == content
    put(session, path, content, left)
    assert root.parts() == []
    client, key = root._client, (root / path.decode()).key
    assert client.get_object(Bucket=root._at[1], Key=key)["Body"].read() == content


def test_parts_of_a_replaced_file_belong_to_nothing(
    session: BucketSession, root: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the content is the same, and where a cut has left them there."""
    monkeypatch.setattr(BucketParts, "clear_away", lambda *_: True)
    path = RUN + b"/progress.csv"
    left = session.append(path, 4, [b"one\n"], put(session, path, b"a,b\n"))
    put(session, path, b"a,b\n", left)
    assert len(root.parts()) == 1
    assert (root / path.decode()).read_bytes() == b"a,b\n"
    assert session.listing(RUN) == [(b"progress.csv", RemoteStat(4, 1_700_000_000))]
    session.remove(path)
    session.remove_folder(RUN)
    assert root.objects() == []


@pytest.mark.slow
def test_what_other_sessions_have_left_is_swept(
    session: BucketSession, server: S3Server, root: BucketPath
) -> None:
    """Several files in one object, each sent as a whole by another session."""
    paths = [RUN + b"/%d.csv" % n for n in range(4)]
    left = {path: put(session, path, b"a,b\n") for path in paths}
    for turn in range(3):
        with session.together():
            for path in paths:
                left[path] = session.append(path, 4 + 2 * turn, [b"%d\n" % turn], left[path])
    assert len(root.parts()) == 3
    for number, path in enumerate(paths):
        other = opened(server, root._at[1])
        put(other, path, b"a,b\n0\n1\n2\n", left[path])
        other.close()
        assert len(root.parts()) == (0 if number == len(paths) - 1 else 3)
        assert all((root / one.decode()).read_bytes() == b"a,b\n0\n1\n2\n" for one in paths)


def test_half_a_part_is_not_there(session: BucketSession, root: BucketPath) -> None:
    path = RUN + b"/progress.csv"
    left = session.append(path, 4, [b"one\n"], put(session, path, b"a,b\n"))
    (key,) = root.parts()
    root._client.put_object(Bucket=root._at[1], Key=key, Body=b"on")
    assert (root / path.decode()).read_bytes() == b"a,b\n"
    session.forget_folders()
    with pytest.raises(ConflictError):  # settled by the sender: it sends the file anew
        session.append(path, 8, [b"two\n"], left)


@pytest.mark.slow
def test_one_reader_while_it_is_merged_and_replaced(
    session: BucketSession, server: S3Server, root: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "DEAD_PARTS", 1)
    path = RUN + b"/progress.csv"
    left, content = put(session, path, b"a,b\n"), b"a,b\n"
    reader = opened(server, root._at[1])
    for turn in range(40):
        state = reader.stat(path)
        assert state is not None
        left = session.append(path, len(content), [b"%d\n" % turn], left)
        content += b"%d\n" % turn
        if turn == 30:
            left = put(session, path, content, left)
        assert reader.read(path, 0, state.size) == content[: state.size]
    reader.close()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_any_request_changes_nothing(
    session: BucketSession, store: FaultyStore, root: BucketPath, fault: str
) -> None:
    """The library repeats what may be repeated; an outcome that nobody knows is found out."""
    requests = 0

    def once(_method: str, _path: str) -> str | None:
        nonlocal requests
        requests += 1
        return fault if requests % 3 == 1 else None

    store.fault = once
    files = {RUN + b"/%d" % n: random_bytes(n * 700, n) for n in range(8)}
    session.make_folders([RUN])
    for path, data in files.items():
        _until_sent(session, path, data)
    path, content = RUN + b"/progress.csv", b"a,b\n"
    left = _until_sent(session, path, content)
    for turn in range(12):
        row = b"%d\n" % turn
        left = _until_appended(session, path, row, left)
        content += row
    store.fault = lambda *_: None
    for name, data in {**files, path: content}.items():
        assert (root / name.decode()).read_bytes() == data
    assert store.faults[fault] > 5


def _until_sent(session: BucketSession, path: bytes, data: bytes) -> RemoteStat:
    """As the sender does it: what is found and has the time that we gave is ours, and replaced if need be."""
    expect: RemoteStat | None = None
    for _ in range(8):
        try:
            (result,) = session.put_many([small(path, data, expect)])
        except LinkError:
            continue
        if isinstance(result, RemoteStat):
            return result
        if isinstance(result, ConflictError) and result.found.mtime_s == 1_700_000_000:
            expect = result.found
            if expect.size == len(data):
                return expect
    raise AssertionError(path)


def _until_appended(session: BucketSession, path: bytes, row: bytes, left: RemoteStat) -> RemoteStat:
    for _ in range(8):
        with suppress(TargetError):
            return session.append(path, left.size, [row], left)
    raise AssertionError(path)


def test_a_large_file_is_there_when_all_of_it_is(
    session: BucketSession, store: FaultyStore, root: BucketPath
) -> None:
    data = random_bytes(20 << 20)
    store.often(0.2, kinds=("cut", "500", "503", "lost", "delay"))
    assert session.upload(large(b"big", data)) == RemoteStat(len(data), 1_700_000_001)
    store.fault = lambda *_: None
    assert (root / "big").read_bytes() == data
    with pytest.raises(SourceChangedError):
        session.upload(replace(large(b"changed", data), unchanged=lambda: False))
    with pytest.raises(SourceChangedError):
        session.upload(
            replace(large(b"shrunk", data), read=lambda at, n: data[at : at + n][: (9 << 20) - at])
        )
    assert session.stat(b"changed") is session.stat(b"shrunk") is None
    (uploads,) = [root._client.list_multipart_uploads(Bucket=root._at[1]).get("Uploads", [])]
    assert uploads == []


def test_two_writers_do_not_overwrite_each_other(
    session: BucketSession, server: S3Server, root: BucketPath
) -> None:
    """The file changes, or the name is taken, between the look and the PUT."""
    other = opened(server, root._at[1])
    left = put(session, RUN + b"/f", b"first")
    for path, expect in ((RUN + b"/f", left), (RUN + b"/new", None)):

        def meanwhile(path: bytes = path, expect: RemoteStat | None = expect) -> bool:
            put(other, path, b"theirs", expect)
            return True

        (result,) = session.put_many([replace(small(path, b"second", expect), unchanged=meanwhile)])
        assert isinstance(result, ConflictError)
        assert (root / path.decode()).read_bytes() == b"theirs"
    other.close()


def test_a_store_that_knows_etags_without_quotes_only(
    session: BucketSession, store: FaultyStore, server: S3Server, root: BucketPath
) -> None:
    """What is replaced is still replaced only as it was left."""
    store.fault = lambda _method, _path: "bare etags"
    left = put(session, RUN + b"/f", b"first")
    again = put(session, RUN + b"/f", b"second", left)
    assert (root / RUN.decode() / "f").read_bytes() == b"second"
    other = opened(server, root._at[1])
    put(other, RUN + b"/f", b"their own", again)
    other.close()
    for expect in (left, again):
        (result,) = session.put_many([small(RUN + b"/f", b"third", expect)])
        assert isinstance(result, ConflictError)
    assert (root / RUN.decode() / "f").read_bytes() == b"their own"


@pytest.mark.slow
def test_names_change_with_what_was_appended(session: BucketSession, root: BucketPath) -> None:
    """A file moved aside, an item moved to the trash and back, a folder of an item."""
    paths = [RUN + b"/progress.csv", RUN + b"/tb/events"]
    for path in paths:
        session.append(path, 4, [b"one\n"], put(session, path, b"a,b\n"))
    session.rename(paths[0], paths[0] + b".kept-1-0")
    assert session.read(paths[0] + b".kept-1-0", 0, 99) == b"a,b\none\n"
    assert session.stat(paths[0]) is None
    trash = b".rla/trash/x/items/" + RUN
    session.rename(RUN, trash)
    assert session.stat(RUN) is None
    assert session.read(trash + b"/tb/events", 0, 99) == b"a,b\none\n"
    session.rename(trash, RUN)
    session.rename(RUN + b"/tb", RUN + b"/tb2")
    assert session.read(RUN + b"/tb2/events", 0, 99) == b"a,b\none\n"
    with pytest.raises(MissingError):
        session.rename(RUN + b"/tb", RUN + b"/tb3")
    session.truncate(RUN + b"/tb2/events", 6)
    assert (root / RUN.decode() / "tb2" / "events").read_bytes() == b"a,b\non"


def test_somebody_elses_objects_are_files_too(session: BucketSession, root: BucketPath) -> None:
    (root / "theirs").write_bytes(b"content")
    state = session.stat(b"theirs")
    assert state is not None
    assert (state.size, state.kind, state.mode) == (7, "file", None)
    assert dict(session.listing(b"")) == {b"theirs": state}
    assert state.mtime_s > 1_700_000_000


def test_errors_say_what_to_do(server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoRootError, match="there is no bucket"):
        opened(server, "not-there")
    with pytest.raises(BlockedError, match="bucket is empty"):
        opened(server, "")
    monkeypatch.setattr(bucket_login, "RETRIES", 0)
    with pytest.raises(LinkError):
        opened(server, bucket, endpoint="http://127.0.0.1:1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BlockedError, match="obstore") as caught:
        opened(server, bucket)
    assert "pip install 'rla-agent[bucket]'" in caught.value.hint


@pytest.mark.slow
def test_a_bucket_of_google_s_is_written_by_generations(
    server: S3Server, bucket: str, root: BucketPath, tmp_path: Path
) -> None:
    front = GcsFront(server.port)
    session = open_bucket(RemoteSetting(**gcs_remote(front, bucket, tmp_path)))  # type: ignore[arg-type]
    path = RUN + b"/run.json"
    first = put(session, path, b"one")
    with pytest.raises(AssertionError, match="ConflictError"):
        put(session, path, b"again")
    second = put(session, path, b"other", first)
    assert session.read(path, 0, 5) == b"other"
    (root / path.decode()).write_bytes(b"by somebody")
    session._files.clear()
    with pytest.raises(AssertionError, match="ConflictError"):
        put(session, path, b"late", second)
    log, content = RUN + b"/progress.csv", b"0\n"
    left = put(session, log, content)
    for turn in range(40):
        left = session.append(log, len(content), [b"%d\n" % turn], left)
        content += b"%d\n" % turn
    assert session.read(log, 0, len(content)) == (root / log.decode()).read_bytes() == content
    data = random_bytes(2 * WHOLE_BYTES + 5)
    there = session.upload(large(RUN + b"/large.bin", data))
    assert session.stat(RUN + b"/large.bin") == there
    put(session, RUN + b"/large.bin", b"small now", there)
    assert (root / (RUN + b"/large.bin").decode()).read_bytes() == b"small now"
    generations = [wanted for wanted, held in front.conditions if held and wanted != "0"]
    assert len(generations) == 2, front.conditions
    session.close()
    front.close()


@pytest.mark.parametrize("protocol", ["gcs", "azure"])
def test_other_providers_are_asked_the_same_way(
    protocol: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No store of theirs is here: that one is sought at the endpoint is all that can be seen."""
    monkeypatch.setattr(bucket_login, "RETRIES", 0)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "lab")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    account = tmp_path / "account.json"
    account.write_text('{"disable_oauth": true, "private_key": "", "private_key_id": "", "client_email": ""}')
    account.chmod(0o600)
    setting = RemoteSetting(
        file_transfer_protocol=protocol,
        bucket="lab",
        endpoint="http://127.0.0.1:1",
        credentials_file=str(account) if protocol == "gcs" else "",
    )
    with pytest.raises(LinkError, match=r"127\.0\.0\.1:1/"):
        open_bucket(setting)


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"])
def test_refused_credentials_are_a_refused_login(
    server: S3Server, bucket: str, store: FaultyStore, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
    monkeypatch.setattr("support.faulty_store.INTERNAL", text)
    monkeypatch.setattr("support.faulty_store._Handler.send_response_only", _forbid)
    store.fault = lambda *_: "500"
    with pytest.raises(LoginError, match=code) as caught:
        opened(server, bucket, endpoint=store.endpoint)
    assert "test-secret" not in f"{caught.value} {caught.value.hint}"


def _forbid(handler: Any, status: int, message: str | None = None) -> None:
    del status, message
    handler._headers_buffer = [b"HTTP/1.1 403 Forbidden\r\n"]


@pytest.mark.skipif(bool(OTHER.port), reason="this server checks keys and signed headers")
def test_credentials_come_from_a_file_of_the_aws_tools(
    server: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    file = tmp_path / "keys"
    file.write_text(
        "[default]\naws_access_key_id = one\n[lab]\naws_access_key_id=two\naws_secret_access_key=s\n"
    )
    with pytest.raises(BlockedError, match="open to other users"):
        opened(server, bucket, credentials_file=str(file))
    file.chmod(0o600)
    opened(server, bucket, credentials_file=str(file), username="lab").close()
    with pytest.raises(BlockedError, match=r"no section \[other\]"):
        opened(server, bucket, credentials_file=str(file), username="other")
    file.write_text("no = section\nsecret")
    with pytest.raises(BlockedError) as caught:
        opened(server, bucket, credentials_file=str(file))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "password: x",
        "secret_access_key: x",
        "aws_access_key_id: x",
        "sas_token: x",
        "endpoint: https://k:s@host",
        "password_env: X",
    ],
)
def test_no_credentials_in_the_configuration(tmp_path: Path, line: str) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text(f"REMOTE_SETTING:\n  file_transfer_protocol: s3\n  bucket: b\n  {line}\n")
    with pytest.raises(ConfigError, match="credentials of a bucket do not belong here"):
        load_config(config)


@pytest.mark.parametrize("root", ["a//b", "/a/../b", "./a", ".."])
def test_a_prefix_that_no_key_can_have_is_told_at_once(tmp_path: Path, root: str) -> None:
    config = tmp_path / "rla_config.yaml"
    lines = f"  file_transfer_protocol: s3\n  bucket: b\n  remote_data_root: {root}\n"
    config.write_text(f"REMOTE_SETTING:\n{lines}")
    with pytest.raises(ConfigError, match="remote_data_root: must be a prefix"):
        load_config(config)
    config.write_text(f"REMOTE_SETTING:\n{lines.replace(root, '/a b/ü..c/')}")
    load_config(config)


def test_the_agent_takes_the_librarys_variables_over(tmp_path: Path) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text("REMOTE_SETTING:\n  file_transfer_protocol: s3\n  bucket: b\n")
    assert password_variables([config]) == KEYS
    config.write_text("REMOTE_SETTING:\n  file_transfer_protocol: sftp\n")
    assert password_variables([config]) == {}


def test_a_targets_name_has_no_secrets(server: S3Server) -> None:
    setting = RemoteSetting(**remote(server, "b"))  # type: ignore[arg-type]
    assert bucket_name(setting) == f"s3://127.0.0.1:{server.port}/b/some/prefix"
    assert bucket_name(replace(setting, endpoint="", remote_data_root="")) == "s3://b"
    with pytest.raises(NoRootError):
        open_bucket(replace(setting, bucket="not-there"))


@pytest.mark.slow
def test_what_the_store_cannot_copy_is_sent_again(
    server: S3Server, bucket: str, root: BucketPath, session: BucketSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstore_store = pytest.importorskip("obstore.store")
    client = {"client_options": {"allow_http": True}, "endpoint": server.endpoint, "region": "us-east-1"}
    s3 = obstore_store.S3Store(bucket, **client)
    path, long = RUN + b"/progress.csv", random_bytes(2 * WHOLE_BYTES + 5, 1)
    left = session.upload(large(path, long))
    session.append(path, len(long), [b"row\n"], left)
    session.upload(large(RUN + b"/film.mp4", long))
    monkeypatch.setattr(bucket_store, "COPY_BYTES", WHOLE_BYTES)
    short_of = BucketSession(Bucket(s3, s3, bucket), "some/prefix")
    short_of.rename(RUN + b"/film.mp4", RUN + b"/film2.mp4")
    trash = b".rla-trash/" + RUN
    short_of.rename(RUN, trash)
    short_of.close()
    assert not (root / RUN.decode()).exists()
    assert (root / f"{trash.decode()}/progress.csv").read_bytes() == long + b"row\n"
    assert (root / f"{trash.decode()}/film2.mp4").read_bytes() == long
    session.forget_folders()
    film = session.stat(trash + b"/film2.mp4")
    assert film is not None
    assert film.mtime_s == 1_700_000_001


def test_a_replaced_object_is_not_sent_again_in_pieces_of_both(
    server: S3Server, bucket: str, root: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstore_store = pytest.importorskip("obstore.store")
    client = {"client_options": {"allow_http": True}, "endpoint": server.endpoint, "region": "us-east-1"}
    s3 = obstore_store.S3Store(bucket, **client)
    first = random_bytes(2 * WHOLE_BYTES, 1)

    class Replacing(Bucket):
        """Somebody replaces the object after its first piece was read."""

        def range(self, key: str, path: bytes, begin: int, end: int, etag: str | None) -> bytes:
            data = super().range(key, path, begin, end, etag)
            (root / "a").write_bytes(first[::-1])
            return data

    (root / "a").write_bytes(first)
    monkeypatch.setattr(bucket_store, "COPY_BYTES", WHOLE_BYTES)
    narrow = Replacing(s3, s3, bucket)
    with pytest.raises(RefusedError):
        narrow.copy("some/prefix/a", "some/prefix/b", len(first), b"b")
    assert not (root / "b").exists()


@pytest.mark.skipif(bool(OTHER.port), reason="this server checks keys and signed headers")
def test_the_doctor_tells_of_a_store_that_ignores_conditions(
    server: S3Server, bucket: str, root: BucketPath, store: FaultyStore, tmp_path: Path
) -> None:
    lines = [f"  {name}: {value}" for name, value in remote(server, bucket, endpoint=store.endpoint).items()]
    config = tmp_path / "rla_config.yaml"
    config.write_text("\n".join(["SEND_LOG_FILE: true", "REMOTE_SETTING:", *lines, ""]))

    def names() -> list[str]:
        return [finding.name for finding in examine_master(load_config(config), tmp_path)]

    assert names() == ["master-http"]
    store.fault = lambda _method, _path: "unconditional"
    assert names() == ["master-no-conditions", "master-http"]
    assert root.objects() == []


def odd_objects(server: S3Server, bucket: str) -> list[str]:
    """What somebody else has put there, in each folder that a pull or push looks at."""
    client = server.client()
    keys = [f"some/prefix/{name}" for name in ("/x", "../x", "log//x", "log/task/./x", "log/\x01/x")]
    keys += [f"some/prefix/log/{ITEM}/{name}" for name in ("../x", "a//b", "c\x1bd")]
    keys.append("some/prefix/.rla-fleet//x")
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, Body=b"odd")
    return keys


def test_keys_that_are_no_files_stop_nothing_and_are_named(
    server: S3Server, bucket: str, root: BucketPath, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, here = Path("log", ITEM), tmp_path / "here"
    for name in ("run.json", "progress.csv", "sub/one.txt"):
        (here / run / name).parent.mkdir(parents=True, exist_ok=True)
        (here / run / name).write_bytes(name.encode() * 50)
    odd = odd_objects(server, bucket)
    caplog.set_level(logging.INFO)
    session = opened(server, bucket)
    sent = push(session, str(here), ItemSelection())
    assert (sent.files, sent.failed) == (3, [])
    log = RUN + b"/progress.csv"
    left = session.stat(log)
    assert left is not None
    session.append(log, left.size, [b"more\n"], left)
    session.close()
    session = opened(server, bucket)
    got = pull(session, str(tmp_path / "there"), ItemSelection())
    assert (got.files, got.failed) == (3, [])
    assert (tmp_path / "there" / run / "progress.csv").read_bytes() == b"progress.csv" * 50 + b"more\n"
    named = {key.removesuffix("/x") for key in got.left_out}
    assert {f"some/prefix/log/{ITEM}/c\x1bd", f"some/prefix/log/{ITEM}/a//"} <= named
    assert all(repr(key) in caplog.text for key in got.left_out)
    assert fleet.machines(session) == []
    assert session.stat(b"log") is not None
    session.rename(RUN, b"results/moved")
    assert sorted(name for name, _ in session.listing(b"results/moved")) == [
        b"progress.csv",
        b"run.json",
        b"sub",
    ]
    session.remove(b"results/moved/run.json")
    session.close()
    assert set(odd) <= set(root.objects())  # they are somebody's


def test_keys_that_no_name_of_ours_has_are_named_and_leave_nothing_behind(
    server: S3Server, bucket: str, root: BucketPath, tmp_path: Path
) -> None:
    for name in ("back\\slash", "!4", "!41/x", "e\u0301", "a", "a/b", "folder/"):
        server.client().put_object(Bucket=bucket, Key=f"some/prefix/log/{ITEM}/{name}", Body=b"theirs")
    session = opened(server, bucket)
    got = pull(session, str(tmp_path / "there"), ItemSelection())
    session.close()
    odd = {key.removeprefix(f"some/prefix/log/{ITEM}/") for key in got.left_out}
    assert {"back\\slash", "!4", "!41"} <= odd
    here = tmp_path / "there" / "log" / ITEM
    assert sorted(str(path.relative_to(here)) for path in here.rglob("*")) == ["a", "a/b", "e\u0301"]
    assert [f"log/{ITEM}/a: " in one for one in got.failed] == [
        True
    ]  # no disk has a file and a folder of a name
    assert root.objects()


@pytest.fixture(params=["gcs", "azure"])
def elsewhere(
    request: pytest.FixtureRequest,
    server: S3Server,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[dict[str, object]]:
    """REMOTE_SETTING for the bucket as one of Google's or Azure's."""
    front: GcsFront | AzureFront
    if request.param == "gcs":
        front = GcsFront(server.port)
        yield gcs_remote(front, bucket, tmp_path)
    else:
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        front = AzureFront(server)
        yield remote(server, bucket, endpoint=front.endpoint, file_transfer_protocol="azure", region="")
        assert front.refused == []
    front.close()


def test_on_gcs_and_azure_they_stop_nothing_either(
    server: S3Server, bucket: str, root: BucketPath, tmp_path: Path, elsewhere: dict[str, object]
) -> None:
    run, here = Path("log", ITEM), tmp_path / "here"
    for name in ("run.json", "progress.csv", "sub/one.txt"):
        (here / run / name).parent.mkdir(parents=True, exist_ok=True)
        (here / run / name).write_bytes(name.encode() * 50)
    odd = odd_objects(server, bucket)
    session = open_bucket(RemoteSetting(**elsewhere))  # type: ignore[arg-type]
    sent = push(session, str(here), ItemSelection())
    assert (sent.files, sent.failed) == (3, [])
    log = RUN + b"/progress.csv"
    left = session.stat(log)
    assert left is not None
    session.append(log, left.size, [b"more\n"], left)
    session.close()
    session = open_bucket(RemoteSetting(**elsewhere))  # type: ignore[arg-type]
    got = pull(session, str(tmp_path / "there"), ItemSelection())
    assert (got.files, got.failed) == (3, [])
    assert (tmp_path / "there" / run / "progress.csv").read_bytes() == b"progress.csv" * 50 + b"more\n"
    named = {key.removesuffix("/x") for key in got.left_out}
    assert {f"some/prefix/log/{ITEM}/c\x1bd", f"some/prefix/log/{ITEM}/a//"} <= named
    assert fleet.machines(session) == []
    session.close()
    assert set(odd) <= set(root.objects())


def test_a_pull_by_hand_names_them_and_does_its_work(
    server: S3Server, bucket: str, root: BucketPath, tmp_path: Path
) -> None:
    (root / "log" / ITEM / "run.json").write_bytes(b"{}")
    odd_objects(server, bucket)
    config = tmp_path / "rla_config.yaml"
    config.write_text(yaml.safe_dump({"REMOTE_SETTING": remote(server, bucket)}))
    words = ["pull", "--config", str(config), "--data-root", str(tmp_path / "there"), "--json"]
    done = CliRunner().invoke(make_app(), ["transfer", *words])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[0])
    assert (told["files"], told["failed"]) == (1, [])
    assert "some/prefix/log/\\x01/" in told["left_out"]
    assert f"whose key is no file name: some/prefix/log/{ITEM}/a//" in done.stderr
    assert (tmp_path / "there" / "log" / ITEM / "run.json").read_bytes() == b"{}"


def content_requests(store: FaultyStore) -> list[str]:
    return [method for _, method, path in store.requests if "list-type" not in path and "?" not in path]


@pytest.mark.slow
def test_a_pull_takes_two_requests_a_file_at_the_same_time(
    server: S3Server, bucket: str, store: FaultyStore, tmp_path: Path
) -> None:
    """One for its time, one for its content, and lists of folders."""
    here, run = tmp_path / "here", Path("results", ITEM)
    for number in range(60):
        file = here / run / f"sub{number % 3}" / f"{number}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(random_bytes(number * 999 + 1, number))
    session = opened(server, bucket)
    assert push(session, str(here), ItemSelection()).failed == []
    log = RUN + b"/progress.csv"
    session.append(log, 2, [b"1\n"], put(session, log, b"a\n"))
    session.close()
    here_now: list[str] = []
    eight = threading.Event()

    def fault(method: str, path: str) -> None:
        if method == "GET" and path.endswith(".bin") and not eight.is_set():
            here_now.append(path)
            if len(here_now) == 8:
                eight.set()
            eight.wait(20)

    store.fault = fault
    session = opened(server, bucket, endpoint=store.endpoint)
    store.requests.clear()
    tally = pull(session, str(tmp_path / "there"), ItemSelection())
    assert (tally.files, tally.failed) == (61, [])
    assert (
        eight.is_set()
    )  # so many requests that none of them would have been answered before the others came
    assert len(content_requests(store)) == 2 * 61 + 1  # and what was appended
    assert (
        len(store.requests) - len(content_requests(store)) < 45
    )  # lists, 11 of which find kinds without items
    assert tree(tmp_path / "there").items() >= tree(here).items()
    store.requests.clear()
    again = pull(session, str(tmp_path / "there"), ItemSelection())
    assert (again.files, again.same) == (0, 61)
    assert "GET" not in content_requests(store)
    session.close()


def test_a_file_that_is_replaced_while_it_is_pulled_is_not_made_of_two(
    session: BucketSession, root: BucketPath, tmp_path: Path
) -> None:
    path = RUN + b"/big.bin"
    size = 2 * READ_BYTES + 5
    session.make_folders([RUN])
    first = session.upload(large(path, b"a" * size))

    def say(_: str, done: int, __: int) -> None:
        if done == READ_BYTES:
            (root / path.decode()).write_bytes(b"b" * size)

    listed = dict(session.listing(RUN))[b"big.bin"]
    assert listed == first
    with pytest.raises(TransientError, match="changed on the master"):
        fetch(session, str(tmp_path), path, listed, say)
    assert not (tmp_path / path.decode()).exists()
    assert fetch(session, str(tmp_path), path, dict(session.listing(RUN))[b"big.bin"])
    assert (tmp_path / path.decode()).read_bytes() == b"b" * size


@pytest.mark.further
def test_a_log_whose_parts_are_merged_while_it_is_pulled_is_whole(
    server: S3Server, session: BucketSession, bucket: str, tmp_path: Path
) -> None:
    path, text = RUN + b"/progress.csv", b"a\n"
    state = put(session, path, text)
    for number in range(10):
        state = session.append(path, len(text), [b"%d\n" % number], state)
        text += b"%d\n" % number
    reader = opened(server, bucket)
    listed = dict(reader.listing(RUN))[b"progress.csv"]
    whole = text
    for _ in range(3 * bucket_module.DEAD_PARTS):
        state = session.append(path, len(whole), [b"x\n"], state)
        whole += b"x\n"
    assert fetch(reader, str(tmp_path), path, listed)
    assert (tmp_path / path.decode()).read_bytes() == text
    reader.close()
