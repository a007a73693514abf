"""What tests of alerts share."""

from __future__ import annotations

from support.alert_scene import hook, scene, train  # noqa: F401 - fixtures
