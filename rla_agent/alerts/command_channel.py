"""Alerts by a user's command."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rla_agent.alerts.bodies import Plain, body, subject
from rla_agent.alerts.route import MAX_ANSWER_BYTES, MAX_SHOWN_CHARS, Route, SendError
from rla_client.contract.filesystem.trusted_paths import file_problem
from rla_client.contract.process.syscalls import memory_file

POLL_S = 0.05
HANDED_ON = frozenset({"PATH", "HOME", "USER", "LANG", "TZ"})  # to commands, with LC_* and ALERT_PREFIX*
ALERT_PREFIX = "RLA_ALERT_"


def _command_environment(
    of_agent: Mapping[str, str], channel: str, alerts: Sequence[Plain]
) -> dict[str, str]:
    """The environment of a command, without the agent's secrets for other purposes.

    Variables for commands are named RLA_ALERT_….
    """
    events = sorted({str(alert["event"]) for alert in alerts})
    handed_on = {
        name: value
        for name, value in of_agent.items()
        if name in HANDED_ON or name.startswith(("LC_", ALERT_PREFIX))
    }
    return {
        "PATH": os.defpath,
        **handed_on,
        ALERT_PREFIX + "CHANNEL": channel,
        ALERT_PREFIX + "EVENTS": ",".join(events),
        ALERT_PREFIX + "SUBJECT": subject(alerts).replace("\0", ""),
    }


def run_command(route: Route, alerts: Sequence[Plain]) -> None:
    """Run the command in a session of its own; the alert comes on stdin, from memory."""
    channel = route.channel
    name = channel.command[0]
    environment = _command_environment(os.environ, channel.name, alerts)
    program = (
        os.path.abspath(route.folder / name) if "/" in name else shutil.which(name, path=environment["PATH"])
    )
    problem = file_problem(program) if program is not None and os.path.exists(program) else None
    if problem is not None:
        raise SendError(f"command {name}: {problem}")
    descriptor = memory_file("rla-alert")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(body("command", alerts))
        os.lseek(descriptor, 0, os.SEEK_SET)
        process = subprocess.Popen(
            list(channel.command),
            stdin=descriptor,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=route.folder,
            env=environment,
            start_new_session=True,
            umask=0o022,
            bufsize=0,
        )
    except OSError as error:
        raise SendError(f"command {name}: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
    told, code = _await(process, time.monotonic() + channel.timeout_s)
    if code is None:
        raise SendError(f"command {name}: timed out after {channel.timeout_s:g} s and was killed")
    if code != 0:
        how = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
        said = f": {told}" if told else ""
        raise SendError(f"command {name}: {how}{said}")


def _await(process: subprocess.Popen[bytes], deadline: float) -> tuple[str, int | None]:
    """The end of a process's output and its exit code; None when it had to be killed."""
    assert process.stdout is not None
    tail, is_open = b"", True
    with process.stdout:
        while time.monotonic() < deadline:
            if is_open and select.select([process.stdout], [], [], POLL_S)[0]:
                data = os.read(process.stdout.fileno(), 1 << 16)
                is_open = bool(data)
                tail = (tail + data)[-MAX_ANSWER_BYTES:]
            elif process.poll() is not None:  # its children may still have the pipe open
                break
            elif not is_open:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
    code = process.poll()
    if code is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return tail.decode("utf-8", "replace").strip()[-MAX_SHOWN_CHARS:], code
