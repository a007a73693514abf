"""Both units on a really booted systemd: a minimal Debian in a container, never the host's own root.

Needs root, debootstrap and systemd-nspawn. The Debian tree is made once in a temp folder (about a
minute); RLA_TEST_SYSTEMD_ROOT names one that is kept.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import wait_until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.root,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("debootstrap", "systemd-nspawn", "nsenter"))),
        reason="needs root, debootstrap and systemd-nspawn",
    ),
]

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT_VARIABLE = "RLA_TEST_SYSTEMD_ROOT"
PACKAGES = "systemd,systemd-sysv,dbus,python3,libpam-systemd,procps"
MAX_EXPOSURE = 1.5
TRAINING = """
import sys, time
from rla_client import exp_manager, logger
root, rows, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
exp_manager.set_hyper_param(lr=0.1)
config = {"LOG_USED": ["csv", "tensorboard"]}
exp_manager.configure("table", rla_config=config, data_root=root, code_root=root)
exp_manager.log_files_gen()
print(exp_manager.log_dir, flush=True)
for number in range(rows):
    logger.record_tabular("number", number)
    logger.dump_tabular()
    print(number, flush=True)
    time.sleep(pause)
print("flushed", logger.flush(60), flush=True)
"""


class Container:
    """A booted Debian with this repository, its interpreter, and the users alice and bob."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        binds = {str(REPOSITORY), sys.prefix, sys.base_prefix}
        command = ["systemd-nspawn", "-q", "-D", str(tree), "--boot", "--register=no", "--keep-unit"]
        command += [
            "--private-network",
            "--machine=rla-test",
            *(f"--bind-ro={path}" for path in sorted(binds)),
        ]
        self._boot = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "0"},
        )
        self._leader = 0

    def await_boot(self) -> None:
        wait_until(self._find_leader, what="systemd as the container's first process")
        wait_until(lambda: self.root("systemctl", "is-system-running").stdout.strip() == "running", 60)

    def _find_leader(self) -> bool:
        assert self._boot.poll() is None, "systemd-nspawn ended"
        children = Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children").read_text().split()
        self._leader = int(children[0]) if children else 0
        return self._leader > 0

    def command(self, user: str, *arguments: str) -> list[str]:
        inside = ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-C", "env", "-i"]
        home = "/root" if user == "root" else f"/home/{user}"
        inside += [f"HOME={home}", f"USER={user}", f"LOGNAME={user}", "LANG=C.UTF-8"]
        inside += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"PYTHONPATH={REPOSITORY}"]
        if user != "root":
            inside += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return [*inside, *arguments]

    def run(self, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(user, *arguments), capture_output=True, text=True, timeout=120, check=False
        )

    def root(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("root", *arguments)

    def agent(self, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(user, sys.executable, "-m", "rla_agent", *arguments)

    def agent_pid(self, user: str) -> int:
        done = self.agent(user, "status", "--json")
        return int(json.loads(done.stdout)["agent"]["pid"] or 0) if done.returncode == 0 else 0

    def inside(self, path: str) -> Path:
        return self.tree / path.lstrip("/")

    def stop(self) -> None:
        self._boot.send_signal(signal.SIGTERM)
        try:
            self._boot.wait(30)
        except subprocess.TimeoutExpired:
            self._boot.kill()
            self._boot.wait()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = os.environ.get(ROOT_VARIABLE)
    path = Path(kept) if kept else tmp_path_factory.mktemp("systemd") / "root"
    if not (path / "usr/bin/systemctl").exists():
        arguments = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(path)]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    for user in ("alice", "bob"):
        shutil.rmtree(path / "home" / user, ignore_errors=True)
        shutil.rmtree(path / "srv" / user, ignore_errors=True)
        subprocess.run(["chroot", path, "userdel", user], check=False, capture_output=True)
        subprocess.run(["chroot", path, "useradd", "-m", user], check=True, capture_output=True)
        subprocess.run(
            ["chroot", path, "install", "-d", "-o", user, f"/srv/{user}", f"/home/{user}/data"], check=True
        )
    for stale in (path / "etc/systemd/system").glob("**/rla-agent*"):
        shutil.rmtree(stale) if stale.is_dir() and not stale.is_symlink() else stale.unlink(missing_ok=True)
    shutil.rmtree(path / "var/lib/systemd/linger", ignore_errors=True)
    (path / "etc/machine-id").write_text("")
    (path / "root").chmod(0o755)  # the interpreter may lie below /root
    (path / "opt/training.py").write_text(TRAINING)
    return path


@pytest.fixture(scope="module")
def container(tree: Path) -> Iterator[Container]:
    found = Container(tree)
    try:
        found.await_boot()
        yield found
    finally:
        found.stop()


class Training:
    """A training process in the container; `said` is what it told after each call returned."""

    def __init__(self, container: Container, user: str, root: str, rows: int, pause_s: float) -> None:
        self._container = container
        arguments = (sys.executable, "-u", "/opt/training.py", root, str(rows), str(pause_s))
        self._process = subprocess.Popen(
            container.command(user, *arguments), stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._lines = self._process.stdout
        self.log_folder = next(line.strip() for line in self._lines if line.startswith("/"))

    def finish(self) -> list[int]:
        told = self._lines.read().split("\n")
        assert self._process.wait(60) == 0
        assert "flushed True" in told
        return [int(line) for line in told if line.isdigit()]

    def stored(self) -> list[int]:
        with self._container.inside(self.log_folder + "/progress.csv").open() as file:
            return [int(row["number"]) for row in csv.DictReader(file)]


def _check_life(container: Container, user: str, roots: tuple[str, str], unit: tuple[str, ...]) -> None:
    """start, status, SIGKILL and watchdog kill with a restart and without loss, stop."""
    for root in roots:
        training = Training(container, user, root, 50, 0.0)
        told = training.finish()
        assert told == training.stored() == list(range(50))

    first = container.agent_pid(user)
    training = Training(container, user, roots[0], 300, 0.01)
    container.root("kill", "-KILL", str(first))
    second = wait_until(
        lambda: (pid := container.agent_pid(user)) != first and pid, 20, what="a restart after SIGKILL"
    )
    told = training.finish()
    assert told == training.stored() == list(range(300))

    training = Training(container, user, roots[1], 300, 0.02)
    container.root("kill", "-STOP", str(second))
    third = wait_until(
        lambda: (pid := _main_pid(container, user, unit)) != second and pid, 40, what="watchdog restart"
    )
    told = training.finish()
    assert told == training.stored() == list(range(300))
    shown = container.run(user, *unit, "-p", "NRestarts")
    assert shown.stdout.strip() == "NRestarts=2", shown

    assert wait_until(lambda: container.agent_pid(user)) == third
    done = container.agent(user, "stop")
    assert done.returncode == 0, done.stderr
    assert container.agent_pid(user) == 0
    state = container.run(user, *unit, "-p", "ActiveState", "-p", "Result")
    assert set(state.stdout.split()) == {"ActiveState=inactive", "Result=success"}, state


def _main_pid(container: Container, user: str, unit: tuple[str, ...]) -> int:
    return int(container.run(user, *unit, "-p", "MainPID", "--value").stdout or 0)


def test_system_template(container: Container) -> None:
    install = [sys.executable, "-m", "rla_agent", "install-service", "--system", "--for-user", "alice"]
    assert container.root(*install, "--data-root", "/home/alice/data").returncode == 0
    done = container.root(*install, "--data-root", "/srv/alice")
    assert done.returncode == 0, done.stderr
    assert "it may write /home/alice/data" in done.stdout, "roots of an earlier call stay"
    assert container.root("systemctl", "is-enabled", "rla-agent@alice").stdout.strip() == "disabled"
    _short_watchdog(container, "/etc/systemd/system/rla-agent@.service.d")
    container.root("systemctl", "daemon-reload")
    done = container.root("systemctl", "enable", "--now", "rla-agent@alice.service")
    assert done.returncode == 0, container.root("journalctl", "-u", "rla-agent@alice").stdout
    status = json.loads(container.agent("alice", "status", "--json").stdout)
    assert status["agent"]["service"] == "system"

    unit = ("systemctl", "show", "rla-agent@alice.service")
    _check_life(container, "alice", ("/home/alice/data", "/srv/alice"), unit)
    refused = container.agent("alice", "start", "--detach")  # only root may start it: no second agent instead
    assert refused.returncode == 1
    assert "systemctl start rla-agent@alice.service" in refused.stderr
    assert container.agent("root", "status", "--json").returncode == 3
    assert container.root("systemctl", "start", "rla-agent@alice").returncode == 0
    container.root("systemctl", "disable", "--now", "rla-agent@alice")


def test_a_root_that_the_service_may_not_write_waits(container: Container) -> None:
    install = [sys.executable, "-m", "rla_agent", "install-service", "--system", "--for-user", "alice"]
    container.root(*install, "--data-root", "/srv/alice")
    container.root("systemctl", "daemon-reload")
    container.root("systemctl", "restart", "rla-agent@alice")
    container.run("alice", "mkdir", "-p", "/home/alice/other")
    arguments = (sys.executable, "-u", "/opt/training.py", "/home/alice/other", "20", "0")
    killed = subprocess.run(
        container.command("alice", "timeout", "-s", "KILL", "4", *arguments),
        capture_output=True,
        text=True,
        check=False,
    )
    folder = (
        killed.stdout.splitlines()[0]
        if not killed.stdout.startswith("rla")
        else killed.stdout.splitlines()[1]
    )
    problems = json.loads(container.agent("alice", "status", "--json").stdout)["problems"]
    assert any("--data-root" in problem["fix"] for problem in problems), problems
    container.root(*install, "--data-root", "/home/alice/other")
    container.root("systemctl", "daemon-reload")
    container.root("systemctl", "restart", "rla-agent@alice")
    csv_file = container.inside(folder + "/progress.csv")
    wait_until(lambda: csv_file.exists() and csv_file.read_text().count("\n") == 21, what="all rows, late")
    container.root("systemctl", "disable", "--now", "rla-agent@alice")


def test_exposure(container: Container) -> None:
    path = "/etc/systemd/system/rla-agent@.service"
    shown = container.root("systemd-analyze", "security", "--offline=yes", "--no-pager", path).stdout
    found = re.search(r"Overall exposure level.*?: ([0-9.]+)", shown)
    assert found is not None, shown
    assert float(found[1]) <= MAX_EXPOSURE, shown


def test_user_unit(container: Container) -> None:
    done = container.agent("bob", "install-service")
    assert done.returncode == 0, done.stderr
    unreachable = container.agent("bob", "start", "--detach")  # no service manager of bob yet: without it
    assert unreachable.returncode == 0, unreachable.stderr
    early = container.agent_pid("bob")
    assert early
    _short_watchdog(container, "/etc/systemd/user/rla-agent.service.d")
    assert container.root("loginctl", "enable-linger", "bob").returncode == 0
    bob = container.run("bob", "id", "-u").stdout.strip()
    session = ("env", f"XDG_RUNTIME_DIR=/run/user/{bob}")
    wait_until(
        lambda: (
            container.run("bob", *session, "systemctl", "--user", "is-system-running").stdout.strip()
            == "running"
        )
    )
    done = container.run("bob", *session, "systemctl", "--user", "enable", "--now", "rla-agent.service")
    assert done.returncode == 0, done.stderr
    status = json.loads(container.agent("bob", "status", "--json").stdout)
    assert status["agent"]["service"] == "user"
    assert status["agent"]["pid"] != early, "the unit takes over from an agent that was started otherwise"
    assert container.run("bob", "kill", "-0", str(early)).returncode != 0

    unit = (*session, "systemctl", "--user", "show", "rla-agent.service")
    _check_life(container, "bob", ("/home/bob/data", "/srv/bob"), unit)
    for verb in ("start", "restart"):  # both go through systemctl, also without the session's environment
        done = container.agent("bob", verb, *(["--detach"] if verb == "start" else []))
        assert done.returncode == 0, done.stderr
        assert _main_pid(container, "bob", unit) == container.agent_pid("bob") != 0
    assert container.run("bob", *session, "systemctl", "--user", "stop", "rla-agent.service").returncode == 0
    training = Training(container, "bob", "/srv/bob", 20, 0.0)  # a client's autostart uses the unit too
    assert training.finish() == training.stored()
    assert _main_pid(container, "bob", unit) == container.agent_pid("bob") != 0


def _short_watchdog(container: Container, folder: str) -> None:
    path = container.inside(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / "90-test.conf").write_text("[Service]\nWatchdogSec=2\n")
