"""Hyper-parameter sweeps (`rla sweep`).

`spec` reads the file, `space` says which hyper-parameters there are to try, `samplers` which come next,
`command` how the program is started with them (`call`: a function). `journal` keeps what is planned and what
became of it, `run_state` the state of each run. `driver` starts, watches and repeats the runs on an engine
(`engines/`): this machine's cores and GPUs, Slurm, or Ray; `driver_setup` makes it. `results` and
`sweep_table` show what came of it.

A sweep survives its driver: what runs continues, and who starts the same sweep again looks after it from
there. Truth about a run that was started is what it left itself: its exit status, written by what
outlives its driver, and the lock that its processes hold while one of them lives.
"""
