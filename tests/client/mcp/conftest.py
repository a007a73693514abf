"""A database with runs as the agent writes them."""

from support.written_runs import make_run, own_state, root  # noqa: F401 - fixtures
