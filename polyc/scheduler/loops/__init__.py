"""Rows → planned loops: tiles, vectors, unrolled rows."""
