"""Rewritings of statements: other sums with the same results, up to rounding where it is algebra.  One rule a file."""
