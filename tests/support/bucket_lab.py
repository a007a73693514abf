"""A bucket for tests: moto's S3 server, a process of its own, and what lies in it as a folder."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rla_agent.replicate.backend.bucket import BucketSession, open_bucket
from rla_agent.replicate.backend.bucket_keys import PARTS, key_of, name_of
from rla_client.config.schema import RemoteSetting
from support.ports import free_port
from support.waiting import wait_until

OTHER = urlsplit(os.environ.get("RLA_TEST_S3", ""))
"""Another S3 server to test against, `http://KEY:SECRET@127.0.0.1:7480`; its buckets are left there."""
OTHER_LOG = os.environ.get("RLA_TEST_S3_LOG", "")
"""Where that one writes a line with "METHOD PATH HTTP/1.1" for each request."""
KEYS = {
    "AWS_ACCESS_KEY_ID": OTHER.username or "test-key",
    "AWS_SECRET_ACCESS_KEY": OTHER.password or "test-secret",
    "AWS_REGION": "us-east-1",
}
SERVER = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"


class S3Server:
    """An S3 server on loopback. A test that makes one is skipped where moto or obstore is not installed."""

    def __init__(self, folder: Path) -> None:
        for library in ("obstore", "moto", "flask"):
            if importlib.util.find_spec(library) is None:
                pytest.skip(f"{library} is not installed: pip install -e '.[dev]'")
        folder.mkdir(parents=True, exist_ok=True)
        self.port = OTHER.port or free_port()
        self.endpoint = f"http://{OTHER.hostname or '127.0.0.1'}:{self.port}"
        self.log = Path(OTHER_LOG) if OTHER_LOG else folder / "s3.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0
        if OTHER.port:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(self.port)], stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, 60, "the S3 server answering")

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=5) as answer:
            return bool(answer.status)
        return False

    def client(self) -> Any:
        """Another implementation's client."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=KEYS["AWS_REGION"],
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )

    def bucket(self) -> str:
        """A new bucket."""
        self._count += 1
        name = f"bucket-{uuid.uuid4().hex[:12] if OTHER.port else self._count}"
        self.client().create_bucket(Bucket=name)
        return name

    def requests(self) -> list[str]:
        """Method and path of each request so far."""
        if not self.log.exists():
            pytest.skip("the requests of this server are not known: RLA_TEST_S3_LOG")
        lines = self.log.read_text(errors="replace").splitlines()
        return [line.split('"')[1] for line in lines if " HTTP/1.1" in line and line.count('"') > 1]

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def remote(server: S3Server, bucket: str, *, endpoint: str = "", **more: object) -> dict[str, object]:
    """REMOTE_SETTING for a bucket."""
    return {
        "file_transfer_protocol": "s3",
        "bucket": bucket,
        "endpoint": endpoint or server.endpoint,
        "region": KEYS["AWS_REGION"],
        "remote_data_root": "some/prefix",
        **more,
    }


def opened(server: S3Server, bucket: str, **more: object) -> BucketSession:
    """A session; the environment holds `KEYS`."""
    return open_bucket(RemoteSetting(**remote(server, bucket, **more)))  # type: ignore[arg-type]


class BucketPath:
    """What lies in a bucket, as another program sees it, by the part of `Path` that the tests need.

    Content is read by a session of its own, as files that grew are several objects.
    """

    def __init__(self, server: S3Server, bucket: str, path: str = "", prefix: str = "some/prefix") -> None:
        self._at = (server, bucket)
        self._prefix = prefix
        self._path = path
        self._client = server.client()

    @property
    def name(self) -> str:
        return self._path.rpartition("/")[2]

    @property
    def key(self) -> str:
        return key_of(self._path.encode(), self._prefix)

    def __truediv__(self, name: str) -> BucketPath:
        return BucketPath(*self._at, f"{self._path}/{name}".lstrip("/"), self._prefix)

    def __lt__(self, other: BucketPath) -> bool:
        return self._path < other._path

    def read_bytes(self) -> bytes:
        session = opened(*self._at)
        try:
            state = session.stat(self._path.encode())
            if state is None:
                raise FileNotFoundError(self._path)
            return session.read(self._path.encode(), 0, state.size)
        finally:
            session.close()

    def write_bytes(self, data: bytes) -> None:
        self._client.put_object(Bucket=self._at[1], Key=self.key, Body=data)

    def unlink(self) -> None:
        self._client.delete_object(Bucket=self._at[1], Key=self.key)

    def exists(self) -> bool:
        return any(key == self.key or key.startswith(self.key + "/") for key in self.objects())

    def objects(self) -> list[str]:
        """Keys of all objects in the bucket."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._at[1])
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def parts(self) -> list[str]:
        """Keys of the objects that hold what was appended."""
        return [key for key in self.objects() if f"/{PARTS}/" in key]

    def rglob(self, _: str) -> Iterator[BucketPath]:
        below = f"{self.key}/"
        for key in self.objects():
            if key.startswith(below) and f"/{PARTS}/" not in key:
                names = [name_of(part) for part in key.removeprefix(below).split("/")]
                text = b"/".join(name for name in names if name is not None).decode()
                yield self / text

    def iterdir(self) -> Iterator[BucketPath]:
        """Files and folders directly in it."""
        skip = len(self._path) + 1 if self._path else 0
        first = {path._path[skip:].partition("/")[0] for path in self.rglob("*")}
        return iter([self / name for name in sorted(first)])
