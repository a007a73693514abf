"""Each finding of `rla-agent doctor`: damage made, finding seen, fix applied, finding gone.

Here those about folders, sockets, the spool, the database and the data root.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import TIME_FACTOR

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.examination import report
from rla_agent.store.agent_db import AgentDatabase
from rla_client.contract.agent.places import Places, machine_key
from rla_client.contract.errors import PlaceError
from rla_client.contract.filesystem.file_systems import network_file_system

REPOSITORY = Path(__file__).resolve().parents[4]
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
def client(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    (tmp_path / "data").mkdir()
    made: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", TRAINING, str(tmp_path / "data")]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        made.append(process)
        assert process.stdout is not None
        assert "up\n" in iter(process.stdout.readline, "")
        return process

    yield start
    for process in made:
        process.kill()
        process.communicate()


def test_nothing_to_find(look: Callable[..., dict[str, Finding]]) -> None:
    assert look() == {}
    assert report([], 80) == "everything is as it should be"


def test_config(look: Callable[..., dict[str, Finding]], tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").write_text("AGENT:\n  colour: red\n")
    found = look()["config"]
    assert (found.level, "line 2: AGENT.colour" in found.what) == ("fault", True)
    (tmp_path / "rla_config.yaml").write_text("AGENT:\n  stall_s: 5\n")
    assert "config" not in look()


@pytest.mark.parametrize("kind", ["state", "runtime"])
def test_folder_open_to_others(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], places: Places, kind: str
) -> None:
    (places.state if kind == "state" else places.runtime).chmod(0o755)
    found = look()[f"{kind}-permissions"]
    assert "755" in found.what
    fix(found)
    assert look() == {}


def test_state_is_a_file(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], places: Places
) -> None:
    shutil.rmtree(places.state)
    places.state.write_text("")
    fix(look()["state-permissions"])
    assert "state-permissions" not in look()
    places.create()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_files_of_somebody_else(look: Callable[..., dict[str, Finding]], places: Places) -> None:
    places.log.write_text("")
    os.chown(places.log, 12345, 12345)
    found = look()["state-owner"]
    assert str(places.log) in found.what
    subprocess.run(shlex.split(found.fix)[1:], check=True)  # without sudo
    assert look() == {}


def test_a_path_that_others_can_change(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], tmp_path: Path, places: Places
) -> None:
    """Their folder above the state; then a home of that kind, which is done without."""
    tmp_path.chmod(0o777)
    found = look()["state-permissions"]
    assert f"{tmp_path} can be written by everybody" in found.what
    with pytest.raises(PlaceError, match=f"chmod o-w {tmp_path}"):
        places.create()
    fix(found)
    assert look() == {}


def test_a_home_that_others_can_change(
    fix: Callable[[Finding], None],
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RLA_STATE_DIR")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    home.chmod(0o777)
    found = look()["state-elsewhere"]
    assert f"/var/tmp/rla-agent-{os.geteuid()}" in found.what
    fix(found)
    assert "state-elsewhere" not in look()


def test_an_interpreter_that_others_can_exchange(
    fix: Callable[[Finding], None],
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    program.parent.chmod(0o777)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(program))
        found = look()["interpreter-unsafe"]
        assert str(program) in found.what
        fix(found)
        assert look() == {}


@pytest.mark.parametrize("kind", ["link", "foreign"])
def test_a_stream_that_is_not_ours(
    look: Callable[..., dict[str, Finding]], places: Places, kind: str
) -> None:
    stream = places.spool / "0123456789abcdef-1-00000000"
    if kind == "link":
        stream.symlink_to(places.state)
    elif os.geteuid() == 0:
        stream.mkdir()
        os.chown(stream, 12345, 12345)
    else:
        pytest.skip("needs root to give a folder away")
    found = look()["spool-foreign"]
    assert str(stream) in found.what
    subprocess.run(shlex.split(found.fix)[1:], check=True)  # without sudo
    assert look() == {}


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount")
def test_no_folder_for_sockets_at_all(places: Places) -> None:
    """The agent takes rows in by looking at the spool, and doctor says what does not work."""
    folder = Path(tempfile.mkdtemp(prefix="rla-", dir="/run"))
    deep = folder / ("s" * 100)
    (folder / "train.py").write_text(TRAINING)
    (folder / "data").mkdir()
    script = f"""
for shared in /tmp /var/tmp /dev/shm; do
    mount --bind $shared $shared && mount -o remount,ro,bind $shared || exit 1
done
export RLA_STATE_DIR={deep} RLA_RUNTIME_DIR=/tmp/nowhere TMPDIR={folder}
cd {folder}
{sys.executable} -m rla_agent.daemon --background & agent=$!
while [ ! -s {deep}/agent.lock ]; do sleep 0.05; done
echo | {sys.executable} train.py data >out 2>&1
while ! grep -qs 1 data/log/table/*/*/*/*/progress.csv; do sleep 0.05; done
{sys.executable} -m rla_agent doctor --json >doctor
kill $agent; wait $agent
"""
    try:
        command = ["timeout", str(60 * TIME_FACTOR), "unshare", "-m", "sh", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = json.loads((folder / "doctor").read_text())["findings"] if done.returncode == 0 else []
        assert "socket-nowhere" in {finding["name"] for finding in found}, done
        assert "Read-only file system" in (deep / "agent.log").read_text()
    finally:
        shutil.rmtree(folder)


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
    from rla_client.contract.filesystem import file_systems

    here = file_systems.file_system_type(places.state)
    monkeypatch.setitem(
        file_systems.NETWORK_FILE_SYSTEMS, here, "NFS"
    )  # the table alone says what is a network
    assert look()["state-network"].level == "fault"
    monkeypatch.delitem(file_systems.NETWORK_FILE_SYSTEMS, here)
    assert "state-network" not in look()


def test_a_missing_state_folder_below_somebody_elses(
    look: Callable[..., dict[str, Finding]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "file" / "state"))
    assert "RLA_STATE_DIR" in look()["state-permissions"].fix
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "mine"))
    assert "state-permissions" not in look()


def test_socket_path_too_long(
    look: Callable[..., dict[str, Finding]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RLA_RUNTIME_DIR", str(tmp_path / ("x" * 110)))
    assert "RLA_RUNTIME_DIR" in look()["socket-path"].fix
    monkeypatch.setenv("RLA_RUNTIME_DIR", "/tmp/rla-short")
    assert "socket-path" not in look()


@pytest.mark.slow
def test_socket_deleted_under_a_living_agent(
    agent: Any, look: Callable[..., dict[str, Finding]], wait_until: Callable[..., Any]
) -> None:
    """A living agent binds it again; one that does not is named."""
    assert look() == {}
    agent.send_signal(signal.SIGSTOP)
    agent.places.control_socket.unlink()
    assert look()["socket-missing"].fix == "rla-agent restart"
    agent.send_signal(signal.SIGCONT)
    wait_until(lambda: look() == {})


@pytest.mark.slow
def test_agent_that_hangs(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    agent.send_signal(signal.SIGSTOP)
    found = look()["agent-silent"]
    assert f"kill -9 {agent.pid}" in found.fix
    agent.restart()
    assert look() == {}


def test_stopped_and_waiting(
    places: Places,
    look: Callable[..., dict[str, Finding]],
    client: Callable[[], subprocess.Popen[str]],
    new_agent: Any,
    wait_until: Callable[..., Any],
) -> None:
    places.stopped_marker.touch()
    process = client()
    assert set(look()) == {"stopped"}, "a living stream waits for nobody"
    process.communicate("\n")
    assert set(look()) == {"stopped", "spool-waiting"}
    new_agent().start()
    wait_until(lambda: look() == {}, what="no finding left")


def test_rows_in_the_state_folder_of_another_host_name(
    look: Callable[..., dict[str, Finding]], tmp_path: Path
) -> None:
    states = tmp_path / "states"
    own, former = (Places(states / name, tmp_path / "r") for name in (machine_key(), "former-00000000"))
    own.create()
    former.create()
    assert "spool-elsewhere" not in look(places=own)
    (former.spool / "0123456789abcdef-1-00000000").mkdir(mode=0o700)
    found = look(places=own)["spool-elsewhere"]
    assert str(former.spool) in found.what
    assert found.fix == f"rla-agent drain --spool {former.state}"


def test_spool_damaged_and_full(
    fix: Callable[[Finding], None],
    places: Places,
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    stream = places.spool / "0123456789abcdef-1-00000000"
    stream.mkdir()
    (stream / "000001.seg").write_bytes(bytes(14 << 20))
    (tmp_path / "rla_config.yaml").write_text("AGENT:\n  spool_max_bytes: 16777216\n")
    found = look()
    assert {"spool-damaged", "spool-full"} <= set(found)
    fix(found["spool-damaged"])
    assert look() == {}


@pytest.mark.slow
def test_database(places: Places, look: Callable[..., dict[str, Finding]], new_agent: Any) -> None:
    AgentDatabase(places.database).close()
    assert look() == {}
    with places.database.open("r+b") as file:
        file.write(b"not a database at all" * 100)
    assert look()["database"].fix.startswith("rla-agent restart")
    new_agent().start()
    found = look()
    assert set(found) == {"database-aside"}
    subprocess.run(found["database-aside"].fix.partition("; then: ")[2], shell=True, check=True)
    assert look() == {}


@pytest.mark.slow
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
    [
        ("ro,size=200m", {"root-permissions"}),
        ("size=4m", {"root-space"}),
        ("size=200m,nr_inodes=500", {"root-space"}),
        ("size=200m", set()),
    ],
)
def test_data_root_full_or_read_only(tmp_path: Path, options: str, names: set[str]) -> None:
    script = (
        "import sys\nfrom rla_agent.service.doctor.places import check_roots\n"
        "from rla_agent.service.doctor.surroundings import Surroundings\n"
        "from rla_client.contract.agent.places import find_places\n"
        "around = Surroundings(find_places(), status={'runs': [{'root': sys.argv[1], 'live': True}]})\n"
        "print(*(finding.name for finding in check_roots(around)))"
    )
    command = f'mount -t tmpfs -o {options} none {tmp_path} && {sys.executable} -c "$0" {tmp_path}'
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, script],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert set(done.stdout.split()) == names, done
