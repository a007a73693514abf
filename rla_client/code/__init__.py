"""Record of a run's code, parameters, machine and packages, without secrets."""
