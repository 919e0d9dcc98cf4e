"""What `.tc` texts and decorated functions mean alike: values, versions of tensors, assignments, reductions and calls."""
