"""The agent of a machine.

It ingests the spooled records of training processes, writes them to the data root, and replicates them.

There is one process per user and machine. `command` is the `rla-agent` command, `daemon` wires the parts.
Of the client package only its pure and its storage modules are imported here.
"""

from __future__ import annotations
