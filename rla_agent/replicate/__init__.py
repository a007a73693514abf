"""Replication: every machine's items end up in one database on the master node, and come back.

A process of its own (`worker`), started by the agent (`agent_side`). `settings` says what goes where,
`plan` decides, `ledger` remembers, `source` finds what changed, `send` moves one file to a target (`sftp`,
`simple`, `bucket`, all behind `target.Session`), `verify` compares, `report` tells what is going on.
`prune` frees space here, `master_trash` removes there. `transfer` and `fetch_back` bring back; they need no
daemon.
"""
