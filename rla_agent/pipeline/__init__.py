"""Pipeline from the spool's segments to durable output files."""
