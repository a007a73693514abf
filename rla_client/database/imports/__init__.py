"""Import of other tools' runs."""
