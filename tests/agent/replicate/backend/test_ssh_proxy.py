"""The way to a master through a command, as ProxyJump and ProxyCommand say it."""

from __future__ import annotations

import shlex
import shutil
import sys
import time

import pytest
from support.replication_lab import Sshd
from support.waiting import wait_until

from rla_agent.replicate.backend.errors import LinkError
from rla_agent.replicate.backend.ssh_config import proxy_command_of
from rla_agent.replicate.backend.ssh_connection import open_transport
from rla_agent.replicate.backend.ssh_login import Login
from rla_agent.replicate.backend.ssh_proxy import ProxySocket

RELAY = """
import os, socket, sys, threading
far = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def send():
    while data := os.read(0, 65536):
        far.sendall(data)
    os._exit(0)
threading.Thread(target=send, daemon=True).start()
os.write(2, b"x" * int(sys.argv[2]))
while data := far.recv(65536):
    os.write(1, data)
"""


def reach(master: Sshd, command: str) -> None:
    """Log in to the master by way of a command."""
    known = master.folder / "known"
    known.write_text(f"[127.0.0.1]:{master.port} {(master.folder / 'host.pub').read_text()}")
    login = Login(
        "127.0.0.1",
        "127.0.0.1",
        master.port,
        "root",
        known_hosts=(known,),
        key_files=(master.folder / "user",),
        proxy_command=command,
    )
    open_transport(login).close()


@pytest.fixture
def jump(master: Sshd) -> str:
    """`ssh -W` to the master by the same server, with a known_hosts of its own."""
    if shutil.which("ssh") is None:
        pytest.skip("OpenSSH's client is not installed")
    files = f"-F none -o UserKnownHostsFile={master.folder}/jump -i {master.folder}/user"
    return f"ssh {files} -o BatchMode=yes -p {master.port} -W 127.0.0.1:{master.port} 127.0.0.1"


def test_a_jump_host_with_a_changed_key_is_named_at_once(master: Sshd, jump: str) -> None:
    known = master.folder / "jump"
    known.write_text(f"[127.0.0.1]:{master.port} {(master.folder / 'user.pub').read_text()}")
    begun = time.monotonic()
    with pytest.raises(LinkError, match="Host key verification failed") as told:
        reach(master, jump)
    assert "known_hosts of the host between" in told.value.hint
    assert time.monotonic() - begun < 15, "it waited for a banner that cannot come"
    known.write_text(f"[127.0.0.1]:{master.port} {(master.folder / 'host.pub').read_text()}")
    reach(master, jump)


@pytest.mark.parametrize(
    ("command", "told"), [("/no/such/gate 1", "/no/such/gate"), ("ssh 'gate", "uoted string")]
)
def test_a_command_that_cannot_run_is_named(master: Sshd, command: str, told: str) -> None:
    with pytest.raises(LinkError, match=told):
        reach(master, command)


def test_a_password_in_the_command_is_not_told(master: Sshd) -> None:
    with pytest.raises(LinkError, match="no such gate") as told:
        reach(master, "sh -c 'echo no such gate >&2' -- -p hunter2")
    assert "hunter2" not in str(told.value) + told.value.hint


def test_a_command_that_says_much_goes_on(master: Sshd) -> None:
    reach(master, shlex.join([sys.executable, "-c", RELAY, str(master.port), "1000000"]))


def test_closing_ends_the_command() -> None:
    way = ProxySocket.run("sleep 1000")
    process = way._process
    way.close()
    wait_until(lambda: process.returncode is not None, 10, "the command was reaped")


@pytest.mark.parametrize(
    ("jump", "address", "command"),
    [
        ("gate", "10.1.2.3", "-W 10.1.2.3:22 gate"),
        ("ada@gate:2222", "10.1.2.3", "-W 10.1.2.3:22 ssh://ada@gate:2222"),
        ("a:1,b,c:3", "::1", "-J a:1,b -W '[::1]:22' ssh://c:3"),
        ("none", "10.1.2.3", ""),
    ],
)
def test_hosts_to_jump_over(jump: str, address: str, command: str) -> None:
    found = proxy_command_of({"proxyjump": jump}, address, 22)
    assert found == (f"ssh -o BatchMode=yes {command}" if command else "")
