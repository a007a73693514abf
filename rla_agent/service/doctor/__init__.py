"""rla_agent/service/doctor."""
