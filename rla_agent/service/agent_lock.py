"""Lock of the one agent of a spool.

An agent locks three things for life, before it binds its sockets. `agent.lock` names it for others, and
clients query that lock to see whether there is an agent. The spool's folder itself must have one owner: it is
the same folder by any path, and cannot be deleted while in use, so its lock is effective where `agent.lock`
was removed, or a link or a bind mount leads around it. (A cleaner such as systemd-tmpfiles leaves a locked
folder alone.) The folder of the sockets is the third: two agents with different state, but the same
RLA_RUNTIME_DIR, would take each other's clients and commands.

A path may come to lead to another folder under a running agent: the state folder was deleted, renamed, or
mounted over, and made again by a client. `AgentLock.lost` detects that, and the agent ends at once: another
one may serve the new folder.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from rla_agent.service.lock_holder import (
    DRAIN_HOLDER,
    HolderProcess,
    describe_holder,
    identity_of,
    read_holder,
)
from rla_client.contract.agent.agent_environment import OWNER_VARIABLE
from rla_client.contract.agent.agent_process import shared_memory_device
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import AgentRunningError
from rla_client.contract.filesystem.safe_paths import open_root
from rla_client.contract.process.locks import holder_pid, lock_record, try_lock
from rla_client.contract.spool.protocol import PROTOCOL_VERSION

TAKE_OVER_S = 25.0  # an agent that drains ends within 20
CLAIM_S = 0.2  # the locks of a process that ends are released one after another
LOSER_S = 5.0  # an agent whose agent.lock was removed notices that within one, and ends
POLL_S = 0.02


class AgentLock:
    """Holds the locks until `release` or the end of the process."""

    def __init__(self, places: Places, service: str = "", *, spool: Path | None = None) -> None:
        """Take the locks, and choose the folder of the sockets: `places` says which, `elsewhere` why.

        Args:
            places: whose lock.
            service: `user` or `system` when a systemd unit runs this agent; DRAIN_HOLDER for one without
                sockets.
            spool: folder of the streams, where it is not that of `places`.

        Raises:
            AgentRunningError: somebody else holds one; the message says who.
            OSError: the file or the folder cannot be opened.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptors = [os.open(places.lock, flags, 0o600)]
        self._kept: dict[Path, tuple[int, int]] = {}
        try:
            lock_record(self._descriptors[0])
        except OSError as error:
            self.release()
            raise AgentRunningError(describe_holder(places)) from error
        try:
            self._name_holder(service, runtime="")  # until it serves, no other agent is addressed
            self._take_folder(places.spool if spool is None else spool)
            self.places, self.elsewhere = (
                (places, "") if service == DRAIN_HOLDER else places.serving(self._claim)
            )
            self.keep(places.lock)
            self._name_holder(service, runtime=str(self.places.runtime))
        except BaseException:
            self.release()
            raise

    def _name_holder(self, service: str, runtime: str) -> None:
        content = {
            "pid": os.getpid(),
            "since": time.time(),
            "host": os.uname().nodename,
            "runtime": runtime,
            "service": service,
            "protocol": PROTOCOL_VERSION,
            "shm": shared_memory_device(),
            "owner": os.environ.get(OWNER_VARIABLE, ""),
        }
        os.ftruncate(self._descriptors[0], 0)
        os.pwrite(self._descriptors[0], json.dumps(content).encode(), 0)

    def _take_folder(self, folder: Path) -> None:
        """Lock the spool's folder; waits for a holder whose agent.lock was removed.

        Raises:
            AgentRunningError: it does not end.
        """
        descriptor = open_root(folder)
        self._descriptors.append(descriptor)
        with suppress(OSError):  # a file system without such locks: agent.lock has to do
            if not try_lock(descriptor, timeout_s=LOSER_S):
                pid = holder_pid(descriptor)
                unseen = "a process that cannot be seen from here (in another container?)"
                holder = unseen if pid is None else f"pid {pid}"
                raise AgentRunningError(f"{holder}, which serves the spool {folder}")
        self._kept[folder] = identity_of(os.fstat(descriptor))

    def _claim(self, folder: Path) -> bool:
        """Lock a folder for sockets; False where another agent has it."""
        descriptor = open_root(folder)
        free = True
        with suppress(OSError):  # a file system without such locks
            free = try_lock(descriptor, timeout_s=CLAIM_S)
        if free:
            self._descriptors.append(descriptor)
        else:
            os.close(descriptor)
        return free

    def keep(self, path: Path) -> None:
        """Let `lost` also watch that an existing file is not replaced."""
        with suppress(FileNotFoundError):
            self._kept[path] = identity_of(os.stat(path))

    def lost(self) -> str:
        """Why this process must not write any more; empty while its paths lead to its locked files."""
        for path, identity in self._kept.items():
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return f"{path} is gone"
            except OSError:
                continue  # a lack of memory or rights proves nothing
            if identity_of(found) != identity:
                return f"{path} is another one now"
        return ""

    def release(self) -> None:
        """Release the locks; agent.lock last, so that the others are free for the next agent."""
        for descriptor in reversed(self._descriptors):
            os.close(descriptor)
        self._descriptors = []


def take_lock(places: Places, service: str) -> AgentLock:
    """The lock; as a service, from an agent that is none, after that one has drained.

    Args:
        places: whose lock.
        service: `user` or `system` when a systemd unit runs this agent, else empty.

    Raises:
        AgentRunningError: another agent holds it.
        OSError: the lock file cannot be opened.
    """
    deadline = time.monotonic() + TAKE_OVER_S
    told = 0
    while True:
        try:
            return AgentLock(places, service)
        except AgentRunningError:
            holder = read_holder(places)
            pid = holder.get("pid")
            if not service or holder.get("service") or time.monotonic() > deadline:
                raise
        if isinstance(pid, int) and pid != told:
            process = HolderProcess.find(places)
            if process is not None:
                told = pid
                process.terminate()
                process.close()
        time.sleep(POLL_S)
