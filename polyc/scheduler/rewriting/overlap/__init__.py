"""Producers computed tile by tile of their consumers, twice where tiles overlap."""
