"""Login at a bucket.

Credentials come from the library's own chain: environment variables (AWS_…, GOOGLE_…, AZURE_…), a web
identity, the container's or the machine's role. For S3 the shared file of the AWS tools
(`~/.aws/credentials`, or `credentials_file`) is read where the environment has none; for GCS
`credentials_file` is a service account's. They are never in `rla_config.yaml`, logs or messages.
"""

from __future__ import annotations

import configparser
import importlib.util
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rla_agent.replicate.backend.bucket_store import Bucket
from rla_agent.replicate.backend.errors import BlockedError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from rla_client.config.schema import RemoteSetting

QUICK_S: Final = 25.0  # for a small request: a dead peer is noticed within 30 s
BULK_S: Final = 300.0  # for 8 MiB: 110 kB/s with four at a time
RETRY_S: Final = 20.0  # retries of a failed request; then the link counts as down
RETRIES: Final = 3
CONNECT_S: Final = 10.0
DEFAULT_REGION: Final = "us-east-1"


def open_store(remote: RemoteSetting) -> Bucket:
    """Open the bucket of a REMOTE_SETTING.

    Raises:
        BlockedError: the library is not installed, no bucket is named, or the settings are wrong.
    """
    if importlib.util.find_spec("obstore") is None:
        what = f"file_transfer_protocol: {remote.file_transfer_protocol} needs the library obstore"
        raise BlockedError("connect", b"", what, "pip install 'rla-agent[bucket]', then: rla-agent restart")
    if not remote.bucket:
        raise BlockedError("connect", b"", "REMOTE_SETTING.bucket is empty", "name the bucket there")
    store, bulk = (object_store(remote, seconds) for seconds in (QUICK_S, BULK_S))
    return Bucket(store, bulk, bucket_name(remote))


def bucket_name(remote: RemoteSetting) -> str:
    """`s3://bucket/prefix`, with the endpoint where one is named; no secrets."""
    at = remote.endpoint.partition("://")[2].rstrip("/")
    root = remote.remote_data_root.strip("/")
    where = f"{at}/{remote.bucket}" if at else remote.bucket
    return f"{remote.file_transfer_protocol}://{where}{'/' if root else ''}{root}"


def object_store(remote: RemoteSetting, timeout_s: float) -> ObjectStore:
    """The library's client of the bucket."""
    from obstore import store  # noqa: PLC0415 - an extra, and only this needs it
    from obstore.exceptions import BaseError  # noqa: PLC0415

    common: dict[str, Any] = {
        "client_options": {
            "allow_http": remote.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "timeout": timedelta(seconds=timeout_s),
            "user_agent": "rla-agent",
        },
        "retry_config": {
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_S),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=4)},
        },
    }
    try:
        if remote.file_transfer_protocol == "gcs":
            return store.GCSStore(remote.bucket, **_gcs(remote), **common)
        if remote.file_transfer_protocol == "azure":
            where: dict[str, Any] = {"endpoint": remote.endpoint.rstrip("/")} if remote.endpoint else {}
            return store.AzureStore(remote.bucket, **where, **common)
        return store.S3Store(remote.bucket, **_s3(remote), **common)
    except (BaseError, ValueError, OSError) as error:
        what = str(error).split("\n", 1)[0][:300]
        raise BlockedError("connect", b"", what, "correct REMOTE_SETTING, or the credentials") from error


def _s3(remote: RemoteSetting) -> dict[str, Any]:
    settings: dict[str, Any] = _shared_credentials(remote)
    if remote.endpoint:
        settings["endpoint"] = remote.endpoint.rstrip("/")
    region = remote.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    settings["region"] = region or DEFAULT_REGION
    return settings


def _gcs(remote: RemoteSetting) -> dict[str, Any]:
    settings = {}
    if remote.endpoint:
        settings["base_url"] = remote.endpoint.rstrip("/")
    if remote.credentials_file:
        settings["service_account"] = str(_private(remote.credentials_file))
    return settings


def _shared_credentials(remote: RemoteSetting) -> dict[str, str]:
    """Credentials in the file of the AWS tools, where it is named or the environment has none."""
    named = remote.credentials_file
    if not named and (os.environ.get("AWS_ACCESS_KEY_ID") or os.environ.get("AWS_ROLE_ARN")):
        return {}
    usual = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    path = _private(named) if named else Path(os.path.expanduser(usual))
    if not path.is_file():
        return {}
    profile = remote.username or os.environ.get("AWS_PROFILE") or "default"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        what = f"{path} cannot be read as a file of the AWS tools"  # its lines may be secrets
        raise BlockedError("log in", b"", what, "lines: [default], aws_access_key_id = …") from error
    if not parser.has_section(profile):
        if not named and not remote.username:
            return {}
        raise BlockedError("log in", b"", f"{path} has no section [{profile}]", "name one in username")
    names = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key"}
    names["aws_session_token"] = "session_token"  # noqa: S105 - a key's name
    section = parser[profile]
    return {goal: section[name].strip() for name, goal in names.items() if section.get(name)}


def _private(name: str) -> Path:
    """A file of credentials that nobody else may read."""
    path = Path(os.path.expanduser(name))
    try:
        mode = path.stat().st_mode
    except OSError as error:
        what = f"credentials_file {path} cannot be read"
        raise BlockedError("log in", b"", what, "check the name and its permissions") from error
    if mode & 0o077:
        raise BlockedError("log in", b"", f"{path} is open to other users", f"run: chmod 600 {path}")
    return path
