"""ContextCite: a lasso on the values of random ablations (Cohen-Wang et al. 2024); not linear, so no `Design`."""

from dataclasses import dataclass

import numpy as np

from shapeline.designs.design import whole
from shapeline.errors import ShapelineError


def context_cite_minimum(d: int) -> int:
    """Smallest budget of `context_cite`, in evaluations: two, between which a part can differ."""
    return 2


def context_cite(d: int, budget: int, seed: int = 0, keep_probability: float = 0.5, alpha: float = 0.01) -> "Ablations":
    """Random ablations and a lasso on standardised masks, as ContextCite fits them.

    Each part is kept independently with `keep_probability`; a mask that is sampled twice is evaluated once and counts
    twice. alpha: of the lasso's penalty, in the unit of the values (the authors' 0.01 is for values per answer token).
    """
    d, budget = whole("context_cite", "d", d, 1), whole("context_cite", "budget", budget, 0)
    if budget < context_cite_minimum(d):
        raise ShapelineError(f"context_cite: budget is {budget} evaluations and the minimum is 2; raise it.")
    masks = np.random.default_rng(seed).random((budget, d)) < keep_probability
    return Ablations(*np.unique(masks, axis=0, return_counts=True), alpha)


@dataclass(frozen=True, eq=False)
class Ablations:
    """Distinct coalitions (K, d) bool with their counts (K,), and a lasso on their values; replaces a `Design`."""

    masks: np.ndarray
    counts: np.ndarray
    alpha: float

    @property
    def d(self) -> int:
        """Number of features."""
        return self.masks.shape[1]

    @property
    def evaluations(self) -> int:
        """Number K of coalitions, each evaluated once an instance."""
        return self.masks.shape[0]

    def attribute_pairs(self, values: np.ndarray) -> None:
        """A fit of single features says nothing of pairs."""

    def attribute(self, values: np.ndarray) -> np.ndarray:
        """Scores (..., d) from the values (..., K) of the coalitions, in the order of the masks."""
        from sklearn.linear_model import Lasso

        values = np.asarray(values, dtype=np.float64)
        centred = self.masks - np.average(self.masks, axis=0, weights=self.counts)
        scale = np.sqrt(np.average(centred**2, axis=0, weights=self.counts))
        rows = centred / np.where(scale > 0, scale, 1.0)
        flat = values.reshape(-1, self.evaluations)
        scores = [Lasso(self.alpha).fit(rows, one, sample_weight=self.counts).coef_ for one in flat]
        return (np.array(scores) / np.where(scale > 0, scale, 1.0)).reshape(*values.shape[:-1], self.d)
