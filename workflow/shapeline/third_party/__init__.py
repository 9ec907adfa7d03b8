"""Other people's explainers as methods: the same budget, reference, target and value as ours, by their own code."""
