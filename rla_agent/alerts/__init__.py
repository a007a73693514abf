"""Alerts about runs, sent by e-mail, webhook or command."""
