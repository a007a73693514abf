"""Rows of runs, read from their files, with the machines that write them."""
