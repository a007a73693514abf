"""Record of a run's program, without secrets: code, parameters, machine, packages."""
