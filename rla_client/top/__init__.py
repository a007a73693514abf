"""The dashboard of `rla top`."""
