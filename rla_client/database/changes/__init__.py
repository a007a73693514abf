"""Changes to a database that are whole or not there."""
