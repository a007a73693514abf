"""Other libraries' loggers, callbacks and wrappers: one module a library, imported by nobody else."""
