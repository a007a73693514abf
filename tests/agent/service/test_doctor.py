"""Each finding of `rla-agent doctor`: damage made, finding seen, fix applied, finding gone.

Here those about the running agent, limits, units, the environment and alerts; and the command itself.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.status import Finding
from rla_agent.service.doctor import Surroundings
from rla_agent.service.systemd import install_user_unit
from rla_client.contract.agent.places import Places

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "doctor.md"


@pytest.mark.slow
def test_problems_of_the_agent(
    agent: Any, look: Callable[..., dict[str, Finding]], wait_until: Callable[..., Any]
) -> None:
    stream = agent.places.spool / "0123456789abcdef-1-00000000"
    stream.mkdir()
    (stream / "000001.seg").write_bytes(b"junk" * 25)
    wait_until(lambda: {"agent-problem", "spool-damaged"} <= set(look()), what="both findings")
    shutil.rmtree(stream)


def test_problems_of_replication(look: Callable[..., dict[str, Finding]]) -> None:
    found = look(replication=({"what": "held up: refused", "fix": "is it up?"},))["replication-problem"]
    assert (found.level, found.what, found.fix) == ("warning", "held up: refused", "is it up?")
    assert look() == {}  # with a master that is down: tests/agent/replicate/worker/test_offline.py


@pytest.mark.slow
def test_version_of_the_agent(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    status = agent.status()
    status["agent"]["version"] = "0.0.1"
    assert look(status=status)["version-agent"].fix == "rla-agent restart"
    assert look() == {}


@pytest.mark.parametrize(
    "library",
    [("msgpack", "version-msgpack", "1.0.0", "1.2.1"), ("torch", "version-torch", "2.9.1+cpu", "2.10")],
)
def test_versions_of_libraries(
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    library: tuple[str, str, str, str],
) -> None:
    name, finding, version, least = library
    old = tmp_path / "old" / f"{name}-{version}.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(old.parent))
    assert look()[finding].fix == f"pip install '{name}>={least}'"
    (old / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {least}\n")
    assert look() == {}
    shutil.rmtree(old)


def test_limits_that_an_agent_would_inherit(look: Callable[..., dict[str, Finding]], places: Places) -> None:
    command = [
        "prlimit",
        "--fsize=1000000",
        "--nofile=50",
        sys.executable,
        "-m",
        "rla_agent",
        "doctor",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = [finding for finding in json.loads(done.stdout)["findings"] if finding["name"] == "limit-agent"]
    assert "50 files" in told[0]["what"]
    assert "1000000 bytes" in told[1]["what"]
    assert "limit-agent" not in look()


@pytest.mark.slow
def test_limits_of_the_agent_that_runs(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    (told,) = agent.status()["problems"]
    assert "ulimit -f" in told["what"]
    assert look()["agent-problem"].what == told["what"]


@pytest.mark.slow
def test_file_limit(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    before = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (500, 500))
    assert "500 files" in look()["limit-files"].what
    if os.geteuid() == 0 or before[1] == 500:
        agent.restart()
        assert look() == {}


def test_watches(look: Callable[..., dict[str, Finding]], system: Path) -> None:
    path = system / "proc/sys/fs/inotify/max_user_watches"
    path.parent.mkdir(parents=True)
    path.write_text("100\n")
    assert look()["limit-watches"].level == "note"
    path.write_text("65536\n")
    assert look() == {}


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount")
def test_shared_memory(places: Places, tmp_path: Path) -> None:
    for size, expected in (("64m", True), ("512m", False)):
        command = (
            f"mount -t tmpfs -o size={size} none /dev/shm && {sys.executable} -m rla_agent doctor --json"
        )
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        names = {finding["name"] for finding in json.loads(done.stdout)["findings"]}
        assert ("limit-shm" in names) is expected, done
    del places


def test_clock(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], places: Places
) -> None:
    places.log.write_text("")
    os.utime(places.log, (time.time() + 3600, time.time() + 3600))
    found = look()["clock"]
    fix(Finding("", "", "", found.fix.partition("; when the clock is right: ")[2]))
    assert look() == {}
    assert look(now=1000.0)["clock"].level == "fault"


# -- units --------------------------------------------------------------------------------------


@pytest.fixture
def user_unit(tmp_path: Path, system: Path, look: Callable[..., dict[str, Finding]]) -> Path:
    """An installed, lingering user unit, and a systemctl that reaches nothing."""
    install_user_unit(None)
    (system / "var/lib/systemd/linger" / Surroundings.here(None).user).touch()
    assert look() == {}
    return tmp_path / "config/systemd/user/rla-agent.service"


def test_unit_stale(user_unit: Path, look: Callable[..., dict[str, Finding]]) -> None:
    user_unit.write_text(user_unit.read_text().replace("WatchdogSec=30", "WatchdogSec=3"))
    assert look()["unit-stale"].fix.startswith("rla-agent install-service")
    install_user_unit(None)
    assert look() == {}


def test_unit_interpreter(user_unit: Path, look: Callable[..., dict[str, Finding]]) -> None:
    user_unit.write_text(user_unit.read_text().replace(sys.executable, "/no/such/python"))
    assert "/no/such/python" in look()["unit-interpreter"].what
    install_user_unit(None)
    assert look() == {}


def test_unit_linger(user_unit: Path, look: Callable[..., dict[str, Finding]], system: Path) -> None:
    (linger,) = (system / "var/lib/systemd/linger").iterdir()
    linger.unlink()
    assert look()["unit-linger"].fix == f"loginctl enable-linger {linger.name}"
    linger.touch()
    assert look() == {}
    del user_unit


@pytest.mark.parametrize(
    ("answer", "name"), [("failed", "unit-failed"), ("", "unit-unreachable"), ("inactive", None)]
)
def test_unit_state(
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    name: str | None,
) -> None:
    from rla_client.contract.agent.systemd_unit import Unit

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(f"#!/bin/sh\necho {answer}\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert set(look(unit=Unit("rla-agent.service", system=False))) == ({name} if name else set())


@pytest.mark.slow
def test_unit_that_does_not_serve(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    from rla_client.contract.agent.systemd_unit import Unit

    unit = Unit("rla-agent.service", system=False)
    assert look(unit=unit)["unit-not-serving"].fix == "rla-agent restart"
    assert "unit-not-serving" not in look(unit=unit, holder={"pid": agent.pid, "service": "user"})


def test_remove_ipc(
    look: Callable[..., dict[str, Finding]], system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)  # logind spares root
    (system / "run/systemd/system").mkdir(parents=True)
    assert "loginctl enable-linger" in look(user="alice")["remove-ipc"].fix
    (system / "var/lib/systemd/linger/alice").touch()
    assert "remove-ipc" not in look(user="alice")
    assert "remove-ipc" in look(user="bob")
    (system / "etc/systemd/logind.conf").write_text("[Login]\nRemoveIPC=no\n")
    assert "remove-ipc" not in look(user="bob")


# -- environment --------------------------------------------------------------------------------


@pytest.mark.slow
def test_password_of_the_service(
    new_agent: Any, look: Callable[..., dict[str, Finding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  ftp_server: master\n  password_env: MASTER_PASSWORD\n"
    (tmp_path / "rla_config.yaml").write_text(remote)
    agent = new_agent().start()
    assert "MASTER_PASSWORD" in look()["service-password"].fix
    monkeypatch.setenv("MASTER_PASSWORD", "x")
    agent.restart()
    assert look() == {}


@pytest.mark.slow
def test_a_buckets_variables_of_the_service(
    new_agent: Any, look: Callable[..., dict[str, Finding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  file_transfer_protocol: s3\n  bucket: lab\n"
    (tmp_path / "rla_config.yaml").write_text(remote)
    agent = new_agent().start()
    assert "service-bucket" not in look()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    assert "AWS_ACCESS_KEY_ID" in look()["service-bucket"].fix
    agent.restart()
    assert look() == {}


@pytest.mark.slow
def test_ssh_agent_of_the_service(
    new_agent: Any, look: Callable[..., dict[str, Finding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rla_config.yaml").write_text("SEND_LOG_FILE: true\nREMOTE_SETTING:\n  ftp_server: master\n")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    agent = new_agent().start()
    assert look() == {}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "ssh"))
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "ssh"))
        assert "has none" in look()["service-ssh-agent"].what
        agent.restart()
        assert look() == {}
    (tmp_path / "ssh").unlink()
    assert "gone" in look()["service-ssh-agent"].what
    (tmp_path / "rla_config.yaml").write_text(
        "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  ftp_server: master\n  identity_file: ~/.ssh/id\n"
    )
    assert look() == {}


def test_credentials_file(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], tmp_path: Path
) -> None:
    (tmp_path / "rla_config.yaml").write_text(
        "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  ftp_server: master\n  credentials_file: secret\n"
    )
    assert "No such file" in look()["credentials"].what
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o644)
    fix(look()["credentials"])
    assert look() == {}


# -- alerts -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_alert_channels(
    fix: Callable[[Finding], None],
    agent: Any,
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channels = "{mail: {kind: email, to: a@b, server: s, username: u, credentials_file: pw}}"
    config = tmp_path / "rla_config.yaml"
    config.write_text(f"AGENT: {{alerts: {{channels: {channels}, rules: [{{when: nan, send: mail}}]}}}}\n")
    assert "No such file" in look()["alerts-secret"].what
    (tmp_path / "pw").write_text("x")
    (tmp_path / "pw").chmod(0o644)
    fix(look()["alerts-secret"])
    assert look() == {}
    monkeypatch.setenv("ONLY_HERE", "x")
    config.write_text(config.read_text().replace("credentials_file: pw", "password_env: ONLY_HERE"))
    assert "ONLY_HERE" in look()["alerts-secret"].what
    agent.restart()
    assert look() == {}


def test_alert_commands(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], tmp_path: Path
) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text("AGENT: {alerts: {channels: {run: {kind: command, command: [./tell]}}}}\n")
    config.chmod(0o646)
    assert set(look()) == {"alerts-command", "alerts-unused"}
    fix(look()["alerts-command"])
    (tmp_path / "tell").write_text("#!/bin/sh\n")
    (tmp_path / "tell").chmod(0o755)
    assert set(look()) == {"alerts-unused"}
    config.write_text(config.read_text().replace("}}}}", "}}, rules: [{when: nan, send: run}]}}"))
    assert look() == {}


# -- the command --------------------------------------------------------------------------------


@pytest.mark.slow
def test_exit_codes_and_json(places: Places, system: Path, tmp_path: Path) -> None:
    del system
    command = [sys.executable, "-m", "rla_agent", "doctor"]
    places.stopped_marker.touch()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "rla-agent start --detach" in done.stdout
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    findings = json.loads(done.stdout)["findings"]
    assert {"name", "level", "what", "fix"} == set(findings[0])
    places.stopped_marker.unlink()
    notes = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert notes.returncode == (
        1 if any(f["level"] != "note" for f in json.loads(notes.stdout)["findings"]) else 0
    )


def test_every_finding_is_documented_and_tested() -> None:
    import re

    sources = [
        Path(__file__).resolve().parents[3] / "rla_agent" / "service" / f"{part}.py"
        for part in ("doctor", "systemd")
    ]
    text = "".join(path.read_text() for path in sources)
    names = set(re.findall(r'Finding\(\s*f?"([a-z{}-]+)"', text))
    names = {n.replace("{name}", kind) for n in names for kind in ("state", "runtime", "msgpack", "torch")}
    documented = set(re.findall(r"^\| `([a-z-]+)`", DOCUMENT.read_text(), re.MULTILINE))
    assert {
        n
        for n in names
        if n not in {"version-state", "version-runtime", "msgpack-permissions", "torch-permissions"}
    } == documented
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert not {
        name for name in documented if f'"{name}"' not in tests and name.partition("-")[2] != "permissions"
    }
