"""Durable recording without waiting.

A record goes into the spool first; the message about it may be lost.
"""
