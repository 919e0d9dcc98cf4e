"""Rows of a schedule by integer linear programming, and the rungs below it."""
