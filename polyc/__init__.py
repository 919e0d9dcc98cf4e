"""polyc: a polyhedral auto-scheduling compiler for tensor operators written in Einstein notation."""
