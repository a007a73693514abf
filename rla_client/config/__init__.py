"""`rla_config.yaml` as frozen dataclasses: schema, rules, alerts, and where a project's file is found."""
