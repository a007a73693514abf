"""What tests of whole trainings share."""

from __future__ import annotations

from support.alert_scene import hook, scene, train  # noqa: F401 - fixtures
from support.replication_fixtures import master  # noqa: F401 - a fixture
