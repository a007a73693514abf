"""`rla_config.yaml` as frozen dataclasses: schema, rules, alerts, search for a project's file."""
