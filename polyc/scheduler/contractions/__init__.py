"""Sums of products: register tiles, operands copied, and what that costs."""
