"""Where the runs of a sweep go: this machine's cores and GPUs, Slurm, Ray."""
