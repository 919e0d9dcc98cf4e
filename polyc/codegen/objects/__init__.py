"""Object code: made, linked, loaded and called."""
