"""Replication of every machine's items into one database on the master node.

A process of its own (`worker`), started by the agent (`agent_side`). `registry` lists the databases,
`target_config` says where each goes, `replicated_scope` which part of it; `hints` wake the worker.
`worker.scan` finds changed files, `worker.file_decision` decides, `ledger` records, `worker.send` moves one
file to a target (`backend.session.TargetSession`), `verify` compares, `status` reports. `prune` frees
space here, `master_trash` removes items there. `transfer` moves files by hand; it needs no daemon.
"""
