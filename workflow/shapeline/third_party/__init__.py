"""Explainers of other packages as methods, with the same budget, reference, target and value as the package's."""
