"""Operators on blocks of their results: what each block needs of the inputs, from the access relations, and a program for it.

A `plan.BlockPlan` is arithmetic and programs; who has arrays in chunks (`polyc.api.dask_arrays`) makes tasks of it.
"""
