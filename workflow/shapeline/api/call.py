"""One call from a notebook, `shapeline.explain(model, inputs, ...)`, by the engine and designs of the workflow."""

from collections.abc import Sequence

from shapeline.api.case import CallOptions, build_case
from shapeline.api.choice import AUTO, automatic, check_entry, count_affordable, limit_exact, seed_by, settle_spending
from shapeline.api.explanation import Explanation
from shapeline.errors import rename_place, reported_extras
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
    """Explain predictions of a model.

    Parameters
    ----------
    model : object
        A torch module, a Keras model, an object with `predict_proba` or `predict`, or a function from rows to
        probabilities or predictions. A model fitted on a data frame receives data frames; a text model a list of texts.
    inputs : data frame, Series, array, str or list
        A data frame or one row of it, an array ``(n, columns)`` or ``(n, channels, height, width)`` or one row or image
        of it, one text or several.
    method : str
        A method of the registry, or ``path/to/file.py:function``. "auto" is exact where all 2^d coalitions are within
        the budget, or at most 256, and otherwise `gp_shapley`.
    reference : object
        The baseline: a kind of the configuration ("zero", "mean", ``{"kind": "background", "rows": 16}``, "blur",
        "pad"), one row of the inputs' kind or several to average over, or for texts a word. Default: at most 100 rows
        of the background, sampled by seed (an evaluation is then so many model rows); without a background the mean of
        the inputs, the blur of a single image, and deletion of words ("delete"; with a tokenizer also "mask", "pad" or
        one of its tokens).
    features : str, dict or Features
        "pixel", "column", "word", "superpixel", ``{"kind": "patch", "size": 2}``, groups of all columns as
        ``{"size": ["height", "weight"], "age": ["age"]}`` or a Features. Default: columns, words, pixels of images of
        up to 1,024, and 16 x 16 patches of larger images.
    budget : float or dict
        Evaluations of sampled methods as a multiple of d, 4 by default; or an error target: ``{"error": 0.05}``,
        ``{"error": "5%"}`` or ``{"top": 5}``, with "max_budget" beside it.
    target : str, int or list
        "predicted" (default), "true" (of y), "each" (a row per class), a class by name or number, a set of classes (a
        row per class), or a list with one per input.
    seed : int
        Seed of all samples; those of an instance also depend on its row and on the equal rows before it.
    background : object
        Rows for the reference; by default the inputs.
    value : str
        Default: log-probability for networks of logits, probability for functions and networks of probabilities,
        prediction for a regression.
    y : sequence
        The true classes.
    feature_names, class_names : sequence of str
        Names of an array's columns; of the classes, by default the model's `classes_`.
    tokenizer : object
        The fast tokenizer of a transformers model whose inputs are texts; a pipeline has both.
    outputs : {"logits", "probabilities"}
        Outputs of a network; detected by default.
    random_state : int
        The seed, by scikit-learn's name.
    evaluations : int
        Number of evaluations per input, instead of a budget.
    **parameters
        Parameters of the method.

    Returns
    -------
    Explanation
        Scores ``(n, *feature shape)`` with standard errors and metadata; where d differs by instance, scores are ``(n,
        largest d)``, NaN beyond an instance's own features.

    Raises
    ------
    ShapelineError
        In one line, for a model, input or argument that does not fit.

    Examples
    --------
    >>> import numpy as np, shapeline
    >>> def predict(rows):
    ...     return 2 * rows[:, 0] + rows[:, 1] * rows[:, 2]
    >>> found = shapeline.explain(predict, np.array([[1.0, 2.0, 3.0]]), reference="zero", value="prediction")
    >>> found.scores.round(6).tolist()
    [[2.0, 3.0, 3.0]]
    """
    first = "gp_shapley" if method == AUTO else method
    settings, spend, evaluations = settle_spending("explain", first, parameters, budget, evaluations)
    seed = seed_by(seed, random_state)
    wanted = CallOptions(
        reference, features, target, seed, background, value, y, feature_names, class_names, tokenizer, outputs
    )
    with rename_place("engine", "explain"):
        case = build_case(model, inputs, wanted)
        if method == AUTO:
            largest = max((own.d for own, _ in case.buckets), default=1)
            spent = count_affordable(largest, spend, evaluations)
            settings = check_entry(automatic(largest, spent, limit_exact(spend, spent)), parameters, spend)
        return case.explain_all(settings, spend, evaluations)
