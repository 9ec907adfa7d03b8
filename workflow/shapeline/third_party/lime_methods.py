"""lime's explainers of texts and images; see games for what they are asked about."""

import contextlib
import io
from collections.abc import Sequence

import numpy as np
from lime import lime_image, lime_text

from shapeline.games.game import Game
from shapeline.methods.parameters import fit_minimum
from shapeline.third_party.games import BATCH, CountedGame, InstanceGame, explain_each

Scored = tuple[np.ndarray, np.ndarray]
ABSENT = "ABSENT"


def text(
    game: Game, inputs: np.ndarray, targets: np.ndarray, instances: Sequence[int], seed: int, budget: int
) -> Scored:
    """Run LimeTextExplainer on word positions (bow=False) with the experiment's value; scores (n, d)."""

    def explain(v: InstanceGame, seed: int) -> np.ndarray:
        explainer = lime_text.LimeTextExplainer(
            bow=False, mask_string=ABSENT, feature_selection="none", random_state=np.random.RandomState(seed)
        )

        def explain_texts(texts: list[str]) -> np.ndarray:
            return v(np.array([words.split() for words in texts]) != ABSENT)[:, None]

        words = " ".join(f"word{place}" for place in range(v.d))
        explanation = explainer.explain_instance(
            words, explain_texts, labels=(0,), num_features=v.d, num_samples=budget
        )
        return _scores(explanation.local_exp[0], v.d)

    asked = CountedGame(game, inputs, targets, instances, seed, budget)
    return explain_each(explain, asked, fit_minimum)


def image(
    game: Game, inputs: np.ndarray, targets: np.ndarray, instances: Sequence[int], seed: int, budget: int
) -> Scored:
    """Run LimeImageExplainer with the experiment's features as segments, all of which have scores."""
    segments = game.features.cells[0]
    _, corners = np.unique(segments, return_index=True)

    def explain(v: InstanceGame, seed: int) -> np.ndarray:
        explainer = lime_image.LimeImageExplainer(feature_selection="none", random_state=np.random.RandomState(seed))

        def explain_images(images: np.ndarray) -> np.ndarray:
            return v(images[..., 0].reshape(len(images), -1)[:, corners])[:, None]

        with contextlib.redirect_stderr(io.StringIO()):  # its progress bar has no switch
            explanation = explainer.explain_instance(
                np.ones((*segments.shape, 3), np.uint8),
                explain_images,
                labels=(0,),
                top_labels=None,
                hide_color=0,
                num_features=v.d,
                num_samples=budget,
                batch_size=BATCH,
                segmentation_fn=lambda _: segments,
            )
        return _scores(explanation.local_exp[0], v.d)

    asked = CountedGame(game, inputs, targets, instances, seed, budget)
    return explain_each(explain, asked, fit_minimum)


def _scores(weights: list[tuple[int, float]], d: int) -> np.ndarray:
    """Return the library's (feature, weight) pairs as scores (d,)."""
    scores = np.zeros(d)
    for feature, weight in weights:
        scores[feature] = weight
    return scores
