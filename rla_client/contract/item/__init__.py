"""Items of a database, as client or agent treat them."""
