"""Operators as a user writes them, in all three notations; ``python -m examples.run_all`` runs them on real sizes."""
