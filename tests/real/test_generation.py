"""A real instruct model, whose folder the variable SHAPELINE_LANGUAGE_MODEL names."""

import os

import numpy as np
import pytest

import shapeline

pytestmark = pytest.mark.real
FOLDER = os.environ.get("SHAPELINE_LANGUAGE_MODEL", "")
CONTEXT = [
    "The Amber Tower was designed by the architect Mara Velling.",
    "The ferry runs every hour.",
    "Tickets cost four crowns.",
]


@pytest.mark.skipif(not os.path.isdir(FOLDER), reason="SHAPELINE_LANGUAGE_MODEL names no folder of a causal model")
def test_the_sentence_that_answers_has_the_largest_score():
    pytest.importorskip("transformers")
    given = {"prompt": "Who designed the Amber Tower?", "context": CONTEXT, "features": "passage"}
    found = shapeline.explain_generation(FOLDER, **given, max_tokens=16)
    assert "Velling" in found.answer and found.top(1) == CONTEXT[:1]
    again = shapeline.explain_generation(FOLDER, **given, target=found.answer, reuse=False)
    np.testing.assert_allclose(again.scores, found.scores, atol=1e-3)
    np.testing.assert_allclose(found.tokens.sum(axis=1), found.scores, atol=1e-9)
