"""Program → Program, before the polyhedral model: one rewriting a file, their order in `pipeline`."""
