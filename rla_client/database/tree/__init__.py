"""The folders of a data root: items, chains, references to runs."""
