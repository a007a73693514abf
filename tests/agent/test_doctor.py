"""Each finding of `rla-agent doctor`: damage made, finding seen, mend applied, finding gone."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rla_agent.doctor import Finding, Surroundings, examine, report
from rla_agent.state import AgentDatabase
from rla_agent.unit_files import install_user_unit
from rla_client.places import Places, network_file_system

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "doctor.md"
TRAINING = """
import sys, time
from rla_client import exp_manager, logger
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"]}, data_root=sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen()
logger.record_tabular("a", 1)
logger.dump_tabular()
print("up", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine, so that findings about this one do not come in between; no unit of this user."""
    found = tmp_path / "system"
    (found / "etc/systemd").mkdir(parents=True)
    (found / "var/lib/systemd/linger").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture
def look(places: Places, system: Path) -> Callable[..., dict[str, Finding]]:
    del places

    def findings(**changes: Any) -> dict[str, Finding]:
        around = Surroundings.here(None, system)
        return {finding.name: finding for finding in examine(replace(around, **changes))}

    return findings


def mend(finding: Finding) -> None:
    """Do what the finding says; only where it is a command of the shell."""
    done = subprocess.run(["sh", "-c", finding.mend], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (finding, done)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    (tmp_path / "data").mkdir()
    made: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", TRAINING, str(tmp_path / "data")]
        made.append(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        assert "up\n" in iter(made[-1].stdout.readline, "")
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.communicate()


def test_nothing_to_find(look: Callable[..., dict[str, Finding]]) -> None:
    assert look() == {}
    assert report([]) == "everything is as it should be"


def test_config(look: Callable[..., dict[str, Finding]], tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").write_text("AGENT:\n  colour: red\n")
    found = look()["config"]
    assert (found.level, "line 2: AGENT.colour" in found.what) == ("fault", True)
    (tmp_path / "rla_config.yaml").write_text("AGENT:\n  stall_s: 5\n")
    assert "config" not in look()


@pytest.mark.parametrize("kind", ["state", "runtime"])
def test_folder_open_to_others(look: Callable[..., dict[str, Finding]], places: Places, kind: str) -> None:
    (places.state if kind == "state" else places.runtime).chmod(0o755)
    found = look()[f"{kind}-permissions"]
    assert "755" in found.what
    mend(found)
    assert look() == {}


def test_state_is_a_file(look: Callable[..., dict[str, Finding]], places: Places) -> None:
    shutil.rmtree(places.state)
    places.state.write_text("")
    mend(look()["state-permissions"])
    assert "state-permissions" not in look()
    places.create()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_files_of_somebody_else(look: Callable[..., dict[str, Finding]], places: Places) -> None:
    places.log.write_text("")
    os.chown(places.log, 12345, 12345)
    found = look()["state-owner"]
    assert str(places.log) in found.what
    subprocess.run(shlex.split(found.mend)[1:], check=True)  # without sudo
    assert look() == {}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount")
def test_state_in_memory_and_full(places: Places, tmp_path: Path) -> None:
    """A small tmpfs, in a mount namespace of its own: volatile, then full."""
    mount = f"mount -t tmpfs -o size=4m,mode=700 none {places.state}"
    command = f"{mount} && {{0}} {sys.executable} -m rla_agent doctor --json"
    for before, expected in (
        ("", {"state-volatile"}),
        (f"head -c 4M /dev/zero > {places.state}/ballast;", {"state-volatile", "state-space"}),
    ):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", command.format(before)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        names = {finding["name"] for finding in json.loads(done.stdout)["findings"]}
        assert expected <= names, done
    assert network_file_system(places.state) is None


def test_network_file_system(
    look: Callable[..., dict[str, Finding]], monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    from rla_client import places as module

    here = module.file_system_type(places.state)
    monkeypatch.setitem(module.NETWORK_FILE_SYSTEMS, here, "NFS")  # the table alone says what is a network
    assert look()["state-network"].level == "fault"
    monkeypatch.delitem(module.NETWORK_FILE_SYSTEMS, here)
    assert "state-network" not in look()


def test_a_missing_state_folder_below_somebody_elses(
    look: Callable[..., dict[str, Finding]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "file" / "state"))
    assert "RLA_STATE_DIR" in look()["state-permissions"].mend
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "mine"))
    assert "state-permissions" not in look()


def test_socket_path_too_long(
    look: Callable[..., dict[str, Finding]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RLA_RUNTIME_DIR", str(tmp_path / ("x" * 110)))
    assert "RLA_RUNTIME_DIR" in look()["socket-path"].mend
    monkeypatch.setenv("RLA_RUNTIME_DIR", "/tmp/rla-short")
    assert "socket-path" not in look()


def test_socket_deleted_under_a_living_agent(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    assert look() == {}
    agent.places.control_socket.unlink()
    assert look()["socket-missing"].mend == "rla-agent restart"
    agent.restart()
    assert look() == {}


def test_agent_that_hangs(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    agent.send_signal(signal.SIGSTOP)
    found = look()["agent-silent"]
    assert f"kill -9 {agent.pid}" in found.mend
    agent.restart()
    assert look() == {}


def test_stopped_and_waiting(
    places: Places,
    look: Callable[..., dict[str, Finding]],
    client: Callable[[], subprocess.Popen[str]],
    new_agent: Any,
) -> None:
    places.stopped_marker.touch()
    process = client()
    assert set(look()) == {"stopped"}, "a living stream waits for nobody"
    process.communicate("\n")
    assert set(look()) == {"stopped", "spool-waiting"}
    new_agent().start()
    end = time.monotonic() + 10
    while look() and time.monotonic() < end:
        time.sleep(0.05)
    assert look() == {}


def test_spool_damaged_and_full(
    places: Places, look: Callable[..., dict[str, Finding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    stream = places.spool / "0123456789abcdef-1-00000000"
    stream.mkdir()
    (stream / "000001.seg").write_bytes(bytes(14 << 20))
    (tmp_path / "rla_config.yaml").write_text("AGENT:\n  spool_max_bytes: 16777216\n")
    found = look()
    assert {"spool-damaged", "spool-full"} <= set(found)
    mend(found["spool-damaged"])
    assert look() == {}


def test_database(places: Places, look: Callable[..., dict[str, Finding]], new_agent: Any) -> None:
    AgentDatabase(places.database).close()
    assert look() == {}
    with places.database.open("r+b") as file:
        file.write(b"not a database at all" * 100)
    assert look()["database"].mend.startswith("rla-agent restart")
    new_agent().start()
    found = look()
    assert set(found) == {"database-aside"}
    subprocess.run(found["database-aside"].mend.partition("; then: ")[2], shell=True, check=True)
    assert look() == {}


def test_data_root(
    agent: Any,
    look: Callable[..., dict[str, Finding]],
    client: Callable[[], subprocess.Popen[str]],
    tmp_path: Path,
    wait_until: Callable[..., Any],
) -> None:
    client()
    wait_until(lambda: agent.status()["runs"])
    os.rename(tmp_path / "data", tmp_path / "away")
    assert "root-missing" in look()
    os.rename(tmp_path / "away", tmp_path / "data")
    assert "root-missing" not in look()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount")
@pytest.mark.parametrize(
    ("options", "names"),
    [("ro,size=200m", {"root-permissions"}), ("size=4m", {"root-space"}), ("size=200m", set())],
)
def test_data_root_full_or_read_only(tmp_path: Path, options: str, names: set[str]) -> None:
    script = (
        "import sys\nfrom rla_agent.doctor_places import check_roots, Surroundings\n"
        "from rla_client.places import find_places\n"
        "around = Surroundings(find_places(), status={'runs': [{'root': sys.argv[1], 'live': True}]})\n"
        "print(*(finding.name for finding in check_roots(around)))"
    )
    command = f'mount -t tmpfs -o {options} none {tmp_path} && {sys.executable} -c "$0" {tmp_path}'
    environment = {**os.environ, "PYTHONPATH": str(DOCUMENT.parents[1])}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, script],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert set(done.stdout.split()) == names, done


def test_problems_of_the_agent(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    stream = agent.places.spool / "0123456789abcdef-1-00000000"
    stream.mkdir()
    (stream / "000001.seg").write_bytes(b"junk" * 25)
    end = time.monotonic() + 5
    while "agent-problem" not in look() and time.monotonic() < end:
        time.sleep(0.05)
    assert {"agent-problem", "spool-damaged"} <= set(look())
    shutil.rmtree(stream)


def test_version_of_the_agent(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    status = agent.status()
    status["agent"]["version"] = "0.0.1"
    assert look(status=status)["version-agent"].mend == "rla-agent restart"
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
    assert look()[finding].mend == f"pip install '{name}>={least}'"
    (old / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {least}\n")
    assert look() == {}
    shutil.rmtree(old)


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


def test_clock(look: Callable[..., dict[str, Finding]], places: Places) -> None:
    places.log.write_text("")
    os.utime(places.log, (time.time() + 3600, time.time() + 3600))
    found = look()["clock"]
    mend(Finding("", "", "", found.mend.partition("; when the clock is right: ")[2]))
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
    assert look()["unit-stale"].mend.startswith("rla-agent install-service")
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
    assert look()["unit-linger"].mend == f"loginctl enable-linger {linger.name}"
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
    from rla_client.autostart import Unit

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(f"#!/bin/sh\necho {answer}\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert set(look(unit=Unit("rla-agent.service", system=False))) == ({name} if name else set())


def test_unit_that_does_not_serve(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    from rla_client.autostart import Unit

    unit = Unit("rla-agent.service", system=False)
    assert look(unit=unit)["unit-not-serving"].mend == "rla-agent restart"
    assert "unit-not-serving" not in look(unit=unit, holder={"pid": agent.pid, "service": "user"})


def test_remove_ipc(
    look: Callable[..., dict[str, Finding]], system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)  # logind spares root
    (system / "run/systemd/system").mkdir(parents=True)
    assert "loginctl enable-linger" in look(user="alice")["remove-ipc"].mend
    (system / "var/lib/systemd/linger/alice").touch()
    assert "remove-ipc" not in look(user="alice")
    assert "remove-ipc" in look(user="bob")
    (system / "etc/systemd/logind.conf").write_text("[Login]\nRemoveIPC=no\n")
    assert "remove-ipc" not in look(user="bob")


# -- environment --------------------------------------------------------------------------------


def test_password_of_the_service(
    new_agent: Any, look: Callable[..., dict[str, Finding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  ftp_server: master\n  password_env: MASTER_PASSWORD\n"
    (tmp_path / "rla_config.yaml").write_text(remote)
    agent = new_agent().start()
    assert "MASTER_PASSWORD" in look()["service-password"].mend
    monkeypatch.setenv("MASTER_PASSWORD", "x")
    agent.restart()
    assert look() == {}


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


def test_credentials_file(look: Callable[..., dict[str, Finding]], tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").write_text(
        "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  ftp_server: master\n  credentials_file: secret\n"
    )
    assert "No such file" in look()["credentials"].what
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o644)
    mend(look()["credentials"])
    assert look() == {}


# -- alerts -------------------------------------------------------------------------------------


def test_alert_channels(
    agent: Any, look: Callable[..., dict[str, Finding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = "{mail: {kind: email, to: a@b, server: s, username: u, credentials_file: pw}}"
    config = tmp_path / "rla_config.yaml"
    config.write_text(f"AGENT: {{alerts: {{channels: {channels}, rules: [{{when: nan, send: mail}}]}}}}\n")
    assert "No such file" in look()["alerts-secret"].what
    (tmp_path / "pw").write_text("x")
    (tmp_path / "pw").chmod(0o644)
    mend(look()["alerts-secret"])
    assert look() == {}
    monkeypatch.setenv("ONLY_HERE", "x")
    config.write_text(config.read_text().replace("credentials_file: pw", "password_env: ONLY_HERE"))
    assert "ONLY_HERE" in look()["alerts-secret"].what
    agent.restart()
    assert look() == {}


def test_alert_commands(look: Callable[..., dict[str, Finding]], tmp_path: Path) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text("AGENT: {alerts: {channels: {run: {kind: command, command: [./tell]}}}}\n")
    config.chmod(0o646)
    assert set(look()) == {"alerts-command", "alerts-unused"}
    mend(look()["alerts-command"])
    (tmp_path / "tell").write_text("#!/bin/sh\n")
    (tmp_path / "tell").chmod(0o755)
    assert set(look()) == {"alerts-unused"}
    config.write_text(config.read_text().replace("}}}}", "}}, rules: [{when: nan, send: run}]}}"))
    assert look() == {}


# -- the command --------------------------------------------------------------------------------


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
    assert {"name", "level", "what", "mend"} == set(findings[0])
    places.stopped_marker.unlink()
    notes = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert notes.returncode == (
        1 if any(f["level"] != "note" for f in json.loads(notes.stdout)["findings"]) else 0
    )


def test_every_finding_is_documented_and_tested() -> None:
    import re

    sources = [
        Path(__file__).resolve().parents[2] / "rla_agent" / f"doctor_{part}.py"
        for part in ("places", "service", "alerts")
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
    tests = Path(__file__).read_text()
    assert not {
        name for name in documented if f'"{name}"' not in tests and name.partition("-")[2] != "permissions"
    }
