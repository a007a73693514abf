"""Talking to a running agent from the command line: status, start in the background, stop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from rla_agent.lock import describe_holder, read_holder
from rla_client.autostart import agent_alive, detached_command, clean_environment
from rla_client.errors import AgentNotRunningError, RemoteProtocolError, RlaError
from rla_client.places import Places
from rla_client.protocol import MessageKind, decode_message, encode_message

ASK_TIMEOUT_S = 5.0
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 25.0
POLL_S = 0.02


def ask_status(places: Places, timeout_s: float = ASK_TIMEOUT_S) -> dict[str, Any]:
    """The agent's own account of itself.

    Raises:
        AgentNotRunningError: no agent holds the lock.
        RlaError: one does and does not answer.
    """
    if not agent_alive(places):
        message = f"no agent is running for {places.state}; start one: rla-agent start --detach"
        raise AgentNotRunningError(message)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"ipc://{places.control_socket}")
        socket.send(encode_message(MessageKind.STATUS, {}))
        if socket.poll(int(timeout_s * 1000)):
            with suppress(RemoteProtocolError):
                _, header, _ = decode_message(socket.recv())
                return header
    finally:
        socket.close(linger=0)
        context.term()
    message = f"the agent does not answer within {timeout_s:g} s: {describe_holder(places)}"
    raise RlaError(message)


def start_detached(places: Places, config: Path | None) -> bool:
    """Start an agent in the background and wait until it answers.

    Returns:
        False when one was running already.

    Raises:
        RlaError: it did not come up; the message says why.
    """
    if agent_alive(places):
        ask_status(places)
        return False
    places.create()
    command = detached_command(config, autostarted=False)
    before = places.log.stat().st_size if places.log.exists() else 0
    subprocess.run(  # noqa: S603 - our own interpreter
        command, stdin=subprocess.DEVNULL, cwd="/", env=clean_environment(), start_new_session=True, check=True
    )
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if agent_alive(places):
            ask_status(places, max(1.0, deadline - time.monotonic()))
            return True
        time.sleep(POLL_S)
    tail = ""
    with suppress(OSError), places.log.open("rb") as log:
        log.seek(before)
        tail = log.read(4000).decode("utf-8", "replace")
    message = f"the agent did not come up within {START_TIMEOUT_S:g} s; its log {places.log} says:\n{tail}"
    raise RlaError(message)


def stop_agent(places: Places, timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """Tell the agent to drain and end, and wait for that.

    Returns:
        False when none was running.

    Raises:
        RlaError: it did not end in time, or cannot be told.
    """
    if not agent_alive(places):
        return False
    pid = read_holder(places).get("pid")
    if not isinstance(pid, int):
        message = f"the lock does not say who holds it: {describe_holder(places)}"
        raise RlaError(message)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while agent_alive(places):
        if time.monotonic() > deadline:
            message = f"the agent (pid {pid}) did not end within {timeout_s:g} s"
            raise RlaError(message)
        time.sleep(POLL_S)
    return True
