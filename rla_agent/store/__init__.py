"""agent.db, and the configuration in force."""
