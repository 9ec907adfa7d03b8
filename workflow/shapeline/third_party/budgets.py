"""The fewest evaluations that each peer takes, both ends included; the configuration asks, so it imports nothing."""


def kernel_minimum(d: int) -> int:
    """Evaluations that a kernel fit of d scores needs: 2d, or all."""
    return min(2 * d, 2**d)


def permutation_minimum(d: int) -> int:
    """Evaluations of one permutation with both of its ends."""
    return d + 1


def pair_minimum(d: int) -> int:
    """Evaluations of one permutation and its reverse."""
    return 2 * d


def split_minimum(d: int) -> int:
    """Evaluations of one split of all the features."""
    return min(4, d + 1)


def fit_minimum(d: int) -> int:
    """Evaluations of a ridge fit, which any number determines."""
    return 2
