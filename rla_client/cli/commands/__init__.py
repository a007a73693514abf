"""The commands of `rla`, a module each."""
