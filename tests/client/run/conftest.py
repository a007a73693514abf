"""Runs as the agent writes them, for what reads their files."""

from support.written_runs import make_run, old_pickle_fixture, root  # noqa: F401 - fixtures
