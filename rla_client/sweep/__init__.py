"""Hyper-parameter sweeps (`rla sweep`).

`sweep_file` reads the file into a `spec`, `space` is the search space, `samplers` choose the next trials,
`command` builds the command of a run (`call`: the call of a function). `journal` stores planned runs and
their events, `run_state` is the state of each run. `driver` starts, watches and repeats the runs on an engine
(`engines/`): this machine's cores and GPUs, Slurm, or Ray; `driver_setup` makes it. `results` and
`sweep_table` show the results.

A sweep survives its driver: its runs continue, and the next driver of the same sweep supervises them. The
state of a started run follows from its own files: its exit status, written by a process that outlives the
driver, and the lock that its processes hold while one of them lives.
"""
