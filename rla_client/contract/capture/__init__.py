"""Agreements about the capture of programs.

The modules here import the standard library alone: hooks load them where `rla_client` is not imported.
"""
