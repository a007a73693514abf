"""Dashboard of runs in a terminal (`rla top`)."""
