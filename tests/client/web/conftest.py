"""A real page, a real browser; each tells at its end what went wrong in it."""

from support.one_run import index, server  # noqa: F401 - fixtures
from support.page_fixtures import browser, faults, page, page_server  # noqa: F401 - fixtures
from support.run_files import one  # noqa: F401 - fixture
from support.written_runs import make_run, own_state, rla, root  # noqa: F401 - fixtures
