"""One call from a notebook, `shapeline.explain(model, inputs, ...)`, by the engine and designs of the workflow."""

from collections.abc import Sequence

from shapeline.api.case import CallOptions, case_of
from shapeline.api.choice import (
    ALWAYS_EXACT,
    AUTO,
    automatic,
    check_spending,
    checked_settings,
    seed_by,
    spent_on,
)
from shapeline.api.explanation import Explanation
from shapeline.errors import reported_extras
from shapeline.games.features import Features


@reported_extras("explain")
def explain(
    model: object,
    inputs: object,
    method: str = AUTO,
    reference: object = None,
    features: str | dict | Features | None = None,
    budget: float | dict | None = None,
    target: object = None,
    seed: int = 0,
    background: object = None,
    value: str | None = None,
    *,
    y: Sequence | None = None,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    tokenizer: object = None,
    outputs: str | None = None,
    random_state: int | None = None,
    evaluations: int | None = None,
    **parameters: object,
) -> Explanation:
    """Explain what a model makes of its inputs, in one call.

    model: a torch module, a Keras model, a predict_proba object or a function -> probabilities. One fitted on a data
    frame is given data frames, a function as well where the inputs are one; of texts it takes a list of them.
    inputs: a data frame or one row of it (a Series), an array (n, columns) or (n, channels, height, width) or one row
    or picture of it, a text or several.
    method: a name of the registry, or path/to/file.py:function. "auto" is exact where all 2^d coalitions are within the
    budget, or at most 256, and else gp_shapley.
    reference: what stands for an absent feature: a kind as in the configuration ("zero", "mean", {"kind": "background",
    "rows": 16}, "blur", "pad", ...), one row of the inputs' kind or several to average over, or for texts a word.
    By default the background's rows, at most 100 of them drawn by seed (each evaluation then is so many rows of the
    model); without a background the inputs' mean, of a single picture its blur, and of texts the word is deleted
    ("delete"; with a tokenizer also "mask", "pad", which is not attended to, or one of its tokens).
    features: "pixel", "column", "word" (texts, or token ids, 0 is padding), "superpixel", {"kind": "patch", "size": 2}
    or a Features. By default columns, words, pixels of pictures of up to 1,024 and 16 x 16 patches of larger ones.
    budget: multiple of d, for sampled methods, 4 by default; or until it is good enough: {"error": 0.05},
    {"error": "5%"} or {"top": 5}, with "max_budget" beside it.
    target: "predicted" (default), "true" (of y), "each" (a row each), a class by name or number, a set of them (a row
    each), or a list, one an input.
    seed: of all draws; an instance's own depend on its row too, and on how many equal ones stand before it.
    background: rows that a reference is made from, else the inputs.
    value: log-probability for networks of logits, probability for functions and networks of probabilities by default;
    a regression model is explained with "prediction", which is the default of an object with `predict` alone.
    y: the true classes. feature_names: of an array's columns. class_names: those of the model's `classes_` by default.
    outputs: "logits" or "probabilities", what a network gives; by default detected.
    tokenizer: the fast tokenizer of a model of transformers, whose inputs are texts; its pipeline has both.
    random_state: the seed, by scikit-learn's name. evaluations: in place of the budget, a number for each input.
    parameters: the method's own.

    Returns an Explanation; where d differs by instance, `scores` is (n, largest d), NaN beyond an instance's own
    features.
    """
    spend = check_spending("explain", budget, evaluations)
    settings = checked_settings("gp_shapley" if method == AUTO else method, parameters, spend)
    seed = seed_by(seed, random_state)
    wanted = CallOptions(
        reference, features, target, seed, background, value, y, feature_names, class_names, tokenizer, outputs
    )
    case = case_of(model, inputs, wanted)
    if method == AUTO:
        largest = max((own.d for own, _ in case.buckets), default=1)
        spent = spent_on(largest, spend, evaluations)
        settings = checked_settings(automatic(largest, spent, max(spent, ALWAYS_EXACT)), parameters, spend)
    return case.explain_all(settings, spend, evaluations)
