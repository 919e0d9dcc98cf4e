"""Calling compiled code: binding arguments, allocating, finding OpenMP, and the Kernel itself."""
