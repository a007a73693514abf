"""Replication: every machine's items end up in one database on the master node, and come back.

A process of its own (`worker`), started by the agent (`supervise`). `plan` decides, `ledger`
remembers, `scan` and `hints` find what changed, `send` moves one file to a target (`sftp`, `ftp`,
`folder`, all behind `target.Session`), `report` tells what is going on. `transfer` fetches back and
verifies; it needs no daemon.
"""

from __future__ import annotations

from rla_agent.replicate.registry import register
from rla_agent.replicate.report import replication_status
from rla_agent.replicate.supervise import ReplicatorProcess
from rla_agent.replicate.worker.notify import Announcer

__all__ = ["Announcer", "ReplicatorProcess", "register", "replication_status"]
