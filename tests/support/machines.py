"""Machines that share only what a test gives them; each has a host name, a state folder, an agent, a root."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from rla_client.contract.agent.places import RUNTIME_VARIABLE, STATE_VARIABLE, Places
from support.waiting import DEADLINE_S, TIME_FACTOR, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
AGENT_TRIES = 5  # clients that load may begin another one meanwhile


class Machine:
    """A machine called `host`: processes that `start` begins see that name, its agent and its data root.

    Needs root, to give them a host name of their own.
    """

    def __init__(self, folder: Path, runtime: Path, host: str, config: dict[str, Any]) -> None:
        if os.getuid() or shutil.which("unshare") is None:
            pytest.skip("needs root and unshare: each machine has a host name of its own")
        self.folder, self.host = folder / host, host
        self.folder.mkdir()
        self.root = self.folder / "data"
        self.root.mkdir()
        self.places = Places(self.folder / "state", runtime / host)
        for made in (self.places.state, self.places.runtime):
            made.mkdir(mode=0o700)
        self.config = self.folder / "rla_config.yaml"
        self.config.write_text(yaml.safe_dump({"LOG_USED": ["csv"], **config}))
        self._agent: subprocess.Popen[bytes] | None = None
        self._unseen: list[Path] = []

    def see_nothing_of(self, *others: Machine) -> None:
        """Processes that begin from now on find the folders of these machines empty."""
        self._unseen = [other.folder for other in others if other is not self]

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Begin a Python process on this machine."""
        return subprocess.Popen(
            self._on_it(*command),
            env=self._environment(environment),
            cwd=self.folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def start_agent(self, **environment: str) -> None:
        """Begin its agent, and wait until it serves; one that a client has begun makes way."""
        for _ in range(AGENT_TRIES):
            self.kill_agent()
            with (self.folder / "agent.log").open("ab") as log:
                self._agent = subprocess.Popen(
                    self._on_it("-m", "rla_agent", "start"),
                    env=self._environment(environment),
                    stdout=log,
                    stderr=log,
                )
            agent = self._agent
            wait_until(lambda: self._serves() or agent.poll() is not None, DEADLINE_S, self._agent_log)  # noqa: B023
            if agent.poll() is None:
                return
        pytest.fail(self._agent_log())

    def kill_agent(self) -> None:
        """SIGKILL, also to one that a client has begun. Does nothing without one."""
        if self._agent is not None:
            self._agent.kill()
            self._agent.wait(60 * TIME_FACTOR)
            self._agent = None
        with suppress(FileNotFoundError, ValueError, ProcessLookupError):
            holder = int(json.loads(self.places.lock.read_text())["pid"])
            if str(self.folder) in _environment_of(holder):
                os.kill(holder, signal.SIGKILL)
                wait_until(lambda: not _environment_of(holder), DEADLINE_S)

    def say(self, *command: str) -> str:
        """What a Python command prints on this machine."""
        process = self.start(*command)
        out, err = process.communicate(timeout=DEADLINE_S * TIME_FACTOR)
        assert process.returncode == 0, err
        return out

    def log_folders(self) -> list[Path]:
        """Of the runs in its data root."""
        return sorted(path for path in self.root.glob("log/*/*/*/*/*") if path.is_dir())

    def _agent_log(self) -> str:
        return (self.folder / "agent.log").read_text()[-3000:]

    def _serves(self) -> bool:
        assert self._agent is not None
        with suppress(FileNotFoundError):
            is_ours = f'"pid": {self._agent.pid},' in self.places.lock.read_text()  # and not a client's
            return is_ours and self.places.control_socket.exists()
        return False

    def _on_it(self, *command: str) -> list[str]:
        hidden = "".join(f"mount -t tmpfs none {shlex.quote(str(path))} && " for path in self._unseen)
        apart = ["--mount"] if hidden else []
        named = f'{hidden}hostname "$0" && exec "$@"'
        return ["unshare", "--uts", *apart, "sh", "-c", named, self.host, sys.executable, *command]

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return {
            **os.environ,
            STATE_VARIABLE: str(self.places.state),
            RUNTIME_VARIABLE: str(self.places.runtime),
            "PYTHONPATH": str(REPOSITORY),
            "RLA_DATA_ROOT": str(self.root),
            "OMP_NUM_THREADS": "1",
            **more,
        }


def _environment_of(process: int) -> str:
    """Empty once it has ended."""
    try:
        return Path(f"/proc/{process}/environ").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def told(path: Path) -> dict[str, Any]:
    """Content of a JSON file; empty while it is not there."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found
