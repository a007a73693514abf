"""Examination of a master (`rla-agent doctor --master`).

One connection is checked against docs/how-to/master.md. The examination tries what the node's login should
not be able to do (a shell, forwarding, seeing the server's own files), names the extensions that a small NAS
lacks with the fallback for each, and writes, renames and deletes a test file. It leaves nothing behind. Host
key and login are checked as for replication.
"""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_agent.model.problem import Finding
from rla_agent.replicate import target_config
from rla_agent.replicate.backend.bucket import BucketSession
from rla_agent.replicate.backend.errors import TargetError
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.backend.sftp import SftpSession
from rla_agent.replicate.backend.sftp_batch import HARDLINK
from rla_agent.replicate.backend.sftp_calls import POSIX_RENAME, STATVFS
from rla_agent.replicate.backend.ssh_connection import open_sftp, open_transport
from rla_agent.replicate.backend.ssh_login import Login, resolve_login
from rla_agent.replicate.backend.trust import try_out
from rla_client.config.schema import BUCKETS, Config
from rla_client.contract.errors import RlaError

if TYPE_CHECKING:
    import paramiko


LITTLE_BYTES: Final = 5 << 30
ANSWER_S: Final = 10.0
_PROBE: Final = "rla-agent-probe"
_CONNECT_FAILED: Final = 2  # SSH_OPEN_CONNECT_FAILED: it was tried, so it is allowed
_FALLBACKS: Final = {
    POSIX_RENAME: "the old file is moved aside first, so that the name is missing for a moment",
    STATVFS: "a full disk shows as Failure, and is guessed",
    HARDLINK: "files of the same content are stored once per item",
}


def examine_master(config: Config, private: Path) -> list[Finding]:
    """Examine the master that a config names.

    Args:
        config: with its REMOTE_SETTING.
        private: `<state>/replicate`.

    Returns:
        Deviations from docs/how-to/master.md; empty when there are none.
    """
    remote = config.remote_setting
    protocol = remote.file_transfer_protocol
    if not remote.named:
        key = "bucket" if protocol in BUCKETS else "ftp_server"
        fix = f"fill in REMOTE_SETTING.{key}, or give --config"
        return [Finding("master-unnamed", "fault", "the configuration names no master", fix)]
    findings = []
    if not config.send_log_file:
        fix = "SEND_LOG_FILE: true, or: rla-agent replicate add DATA_ROOT"
        findings.append(Finding("master-off", "note", "SEND_LOG_FILE is off: runs are not replicated", fix))
    if remote.password:
        fix = "use a key (rla-agent trust), or password_env or credentials_file"
        findings.append(Finding("master-password", "warning", "the config holds a password", fix))
    warning = target_config.backend_of(remote).warning
    if warning:
        findings.append(Finding(f"master-{protocol}", "warning", warning, "file_transfer_protocol: sftp"))
    try:
        if protocol == "sftp":
            login = resolve_login(remote, private, config.path)
            findings += _closed_down(login)
            session: TargetSession = open_sftp(login, remote.remote_data_root)
        else:
            session = target_config.target(config, private).open()
        with closing(session):
            findings += _at_work(session)
        if protocol in BUCKETS and remote.endpoint.startswith("http://"):
            what = (
                "the store is reached without encryption: whoever listens in reads and changes what is sent"
            )
            findings.append(Finding("master-http", "warning", what, "REMOTE_SETTING.endpoint: https://…"))
    except TargetError as error:
        what = f"the master does not take files: {error}"
        findings.append(Finding("master-refuses", "fault", what, error.hint or "see docs/how-to/master.md"))
    except RlaError as error:
        findings.append(Finding("master-refuses", "fault", str(error), "see docs/how-to/master.md"))
    return findings


def _at_work(session: TargetSession) -> list[Finding]:
    findings = []
    for what in try_out(session)[1:]:
        fix = "let the server set permissions: its file system must keep them, setstat must not be denied"
        findings.append(Finding("master-modes", "warning", what, fix))
    free = session.free_bytes()
    if free is not None and free < LITTLE_BYTES:
        what = f"the master has {free / 2**30:.1f} GiB free"
        fix = "free space there; sending stops when it is full"
        findings.append(Finding("master-space", "warning", what, fix))
    if isinstance(session, BucketSession) and not session.heeds_conditions():
        what = "the store ignores If-None-Match: if two machines write one file, one version may be lost"
        fix = "use a store with conditional writes (AWS S3, GCS, Azure, a recent MinIO)"
        findings.append(Finding("master-no-conditions", "warning", what, fix))
    if isinstance(session, SftpSession):
        for extension, instead in _FALLBACKS.items():
            if extension not in session.extensions:
                name = extension.decode().partition("@")[0]
                what = f"the master's SFTP server has no {name}: {instead}"
                findings.append(Finding(f"master-no-{name}", "note", what, "OpenSSH has it"))
        if session.reaches(b"/etc/passwd"):
            what = "the login sees the whole file system of the master"
            fix = "ChrootDirectory in sshd_config, see docs/how-to/master.md"
            findings.append(Finding("master-chroot", "note", what, fix))
    return findings


def _closed_down(login: Login) -> list[Finding]:
    findings = []
    with closing(open_transport(login)) as transport:
        if _runs_commands(transport):
            what = f"{login.user} may run commands on the master"
            fix = f"ForceCommand internal-sftp for {login.user} in the master's sshd_config"
            findings.append(Finding("master-shell", "warning", what, fix))
        if _forwards(transport):
            what = f"{login.user} may forward connections through the master"
            fix = "AllowTcpForwarding no there, or `restrict` before the key in authorized_keys"
            findings.append(Finding("master-forwarding", "warning", what, fix))
    return findings


def _runs_commands(transport: paramiko.Transport) -> bool:
    import paramiko  # noqa: PLC0415

    with suppress(paramiko.SSHException, EOFError, OSError):
        channel = transport.open_session(timeout=ANSWER_S)
        channel.settimeout(ANSWER_S)
        channel.exec_command(f"echo {_PROBE}")
        channel.shutdown_write()
        return _PROBE.encode() in channel.recv(1024)
    return False


def _forwards(transport: paramiko.Transport) -> bool:
    import paramiko  # noqa: PLC0415

    try:
        transport.open_channel("direct-tcpip", ("127.0.0.1", 1), ("127.0.0.1", 0), timeout=ANSWER_S).close()
    except paramiko.ChannelException as error:
        return bool(error.code == _CONNECT_FAILED)
    except (paramiko.SSHException, EOFError, OSError):
        return False
    return True
