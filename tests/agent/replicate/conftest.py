from __future__ import annotations

from support.replication_fixtures import (  # noqa: F401 - fixtures
    bucket,
    bucket_keys,
    make_node,
    master,
    node,
    proxy,
    server,
)
