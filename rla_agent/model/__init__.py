"""Pure decisions: frames to records, events to states, facts to status."""
