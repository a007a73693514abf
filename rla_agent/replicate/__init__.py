"""Replication: every machine's items end up in one database on the master node, and come back.

A process of its own (`worker`), started by the agent (`agent_side`). `plan` decides, `ledger` remembers,
`source` and `notify` find what changed, `send` moves one file to a target (`sftp`, `ftp`, `folder`,
`bucket`, all behind `target.Session`), `report` tells what is going on. `pull` fetches back and verifies;
it needs no daemon.
"""
