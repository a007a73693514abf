"""`rla sweep`: many runs of one program, each with other hyper-parameters, on one machine or many.

`spec` reads the file, `space` says which hyper-parameters there are to try, `command` how the program is
started with them. `journal` keeps what is planned and what became of it, and says the state of each run.
`driver` chooses which are tried next, and starts, watches and repeats the runs on an engine (`engines/`):
this machine's cores and GPUs, Slurm, or Ray.

A sweep survives its driver: what runs continues, and who starts the same sweep again looks after it from
there. Truth about a run that was started is what it left itself: its exit status, written by what
outlives its driver, and the lock that its processes hold while one of them lives.
"""
