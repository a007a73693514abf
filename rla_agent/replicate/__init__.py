"""Replication of every machine's items into one database on the master node.

A process of its own (`worker`), started by the agent (`agent_side`). `registry` lists the databases,
`target_config` says where each goes, `replicated_scope` which part of it; `hints` wake the worker.
`worker.scan` finds what changed, `worker.file_decision` decides, `ledger` remembers, `worker.send` moves one
file to a target (`backend.session.Session`), `verify` compares, `status` tells what is going on. `prune`
frees space here, `master_trash` removes there. `transfer` brings back; it needs no daemon.
"""
