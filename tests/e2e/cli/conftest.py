"""`rla` over a database with runs as the agent writes them."""

from support.written_runs import make_run, old_pickle_fixture, own_state, rla, root  # noqa: F401 - fixtures
