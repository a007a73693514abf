"""The agent of a machine.

It takes in what training processes spooled, writes it to the data root, copies it on.

One process per user and machine. `command` is the `rla-agent` command, `daemon` wires the parts.
Of the client package only its pure and its storage modules are imported here.
"""

from __future__ import annotations
