"""The calls for one explanation: `shapeline.explain` of a model, and `shapeline.shapley_values` of any game.

Both use the engine and the designs of the workflow.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from shapeline.api import choice
from shapeline.api.case import CallOptions, build_case
from shapeline.api.explanation import Explanation, Metadata
from shapeline.api.formatting import GAME, MIN_SECONDS, ONE, is_watched
from shapeline.attribution.explanation import Explanation as Record
from shapeline.attribution.game_values import WHERE, read_attribute
from shapeline.attribution.run import Options, attribute
from shapeline.attribution.set_game import Evaluation, OutputGame, Values, check_names, check_outputs, count_processes
from shapeline.designs.design import check_choice, check_integer, count_evaluations
from shapeline.errors import MethodFailure, ShapelineError, name_type, rename_place, reported_extras
from shapeline.files import check_path
from shapeline.games.features import Features
from shapeline.methods.registry import METHODS
from shapeline.methods.settings import MethodSettings, parse
from shapeline.seeds import seed_of

MAX_PLAYERS = 2**22


@reported_extras("explain")
def explain(
    model: object,
    inputs: object,
    method: str = choice.AUTO,
    reference: object = None,
    features: object = None,
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
    features : str, dict, array or Features
        "pixel", "column", "word", "superpixel", ``{"kind": "patch", "size": 2}``, groups of all columns as
        ``{"size": ["height", "weight"], "age": ["age"]}``, whole numbers that are equal in cells of one feature, as of
        superpixels or in a feature mask of captum, for all inputs or per input, or `games.features.Features`; of texts
        without a tokenizer also "sentence", "passage", or a function from a text to its parts in order. Default:
        columns, words, pixels of images of up to 1,024, and 16 x 16 patches of larger images.
    budget : float or dict
        Evaluations of sampled methods as a multiple of d, by default 4, or the method's minimum if that is more; or an
        error target: ``{"error": 0.05}``, ``{"error": "5%"}`` or ``{"top": 5}``, with "max_budget" beside it.
    target : str, int or list
        "predicted" (default), "true" (of y), "each" (a row per class), a class by name or number, a set of classes (a
        row per class), or a list with one per input.
    seed : int
        Seed of all samples; those of an instance also depend on its row and on the equal rows before it.
    background : object
        Rows for the reference; by default the inputs.
    value : str
        Default: log-probability for networks of logits and for gradient methods, probability for functions and networks
        of probabilities, prediction for a regression.
    y : sequence
        The true classes.
    feature_names, class_names : sequence of str
        Names of an array's columns or a series' channels; of the classes, by default the model's `classes_`.
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
    is_auto = choice.is_auto(method, "explain")
    first = "gp_shapley" if is_auto else method
    settings, evaluations = choice.settle_spending("explain", first, parameters, budget, evaluations)
    seed = choice.seed_by(seed, random_state)
    wanted = CallOptions(
        reference, features, target, seed, background, value, y, feature_names, class_names, tokenizer, outputs
    )
    with rename_place("engine", "explain"):
        case = build_case(model, inputs, wanted)
        if is_auto:
            largest = max((own.d for own, _ in case.buckets), default=1)
            spend = choice.check_spending("explain", budget, evaluations)
            spent = choice.count_affordable(largest, spend, evaluations)
            settings = choice.check_entry(
                choice.choose_method(largest, spent, choice.limit_exact(spend, spent)), parameters, spend
            )
        else:
            case.check_fixed_cost("explain", settings, evaluations)
        return case.settle_value(value, [settings["method"]]).explain_all(settings, budget, evaluations)


def shapley_values(
    game: Callable,
    n_players: int | None = None,
    evaluations: int | None = None,
    method: str = choice.AUTO,
    *,
    budget: float | dict | None = None,
    player_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    seed: int = 0,
    random_state: int | None = None,
    n_jobs: int = 1,
    batch: int | None = None,
    cache: str | Path | None = None,
    identity: str | None = None,
    retries: int = 0,
    on_error: str = "fail",
    progress: bool | Callable[[int, int], None] | None = None,
    **parameters: object,
) -> Explanation:
    """Estimate the Shapley values of the players of any cooperative game.

    Parameters
    ----------
    game : callable
        From coalitions ``(K, n_players)`` bool, True where a player takes part, to values ``(K,)`` or
        ``(K, n_outputs)``. It must give the empty and the full coalition a finite value too. A class of
        `shapeline.games` is one.
    n_players : int, optional
        Number of players; by default that of `game.n_players`, or of `player_names`.
    evaluations : int, optional
        Largest number of coalitions to evaluate; a method that always evaluates more is refused.
    method : str
        "auto", or a method of coalitions: "shapley" (exact), "gp_shapley", "kernel_shap", "gp_interactions", ...
        "auto" is exact where all coalitions are within `evaluations`, or are at most 256 if neither that nor an error
        target is given, and else gp_shapley.
    budget : float or dict, optional
        In place of `evaluations`: a multiple of the number of players, by default 4, or the method's minimum if that is
        more; or an error target as in `shapeline.explain`: ``{"error": 0.05}``, ``{"error": "5%"}`` or ``{"top": 5}``,
        with "max_budget" beside it.
    player_names, output_names : sequence of str, optional
        Names of the players, all different, and of the outputs.
    seed, random_state : int
        Seed of the sampled coalitions, by either name.
    n_jobs : int
        Processes that evaluate coalitions; -1 for all processors. The result does not depend on it.
    batch : int, optional
        Coalitions of one call of the game; by default as many as it evaluates in about a second.
    cache : path, optional
        Parquet file that receives each value as soon as it is known. The same call resumes from it.
    identity : str, optional
        What the game is, kept in the cache, which refuses another one; that of `game.identity` by default. Without one
        five held coalitions or more, also both ends, are evaluated again, and the cache is refused if one differs.
    retries : int
        How often an evaluation that raises, or gives no finite number, is tried again.
    on_error : {"fail", "record"}
        Whether the first evaluation that fails for good raises, or the others are made and the explanation has the
        status "evaluation failed".
    progress : bool or callable, optional
        Whether to show a bar, by default in a terminal or a notebook; or a function of the coalitions evaluated and
        those left.
    **parameters
        Those of the method.

    Returns
    -------
    Explanation
        A row of scores per output. All outputs share one sample and one estimator, chosen on their sum, so that their
        scores add up to the scores of the sum.

    Raises
    ------
    ShapelineError
        One line that says what is wrong with the game or an argument.

    Examples
    --------
    >>> import shapeline
    >>> found = shapeline.shapley_values(lambda masks: masks @ [1.0, 2.0, 4.0] + masks.all(axis=1), 3)
    >>> found.scores.round(3)
    array([[1.333, 2.333, 4.333]])
    """
    seed = choice.seed_by(seed, random_state, WHERE)
    n = _count_players(game, n_players, player_names)
    names = check_names(
        "player_names", _read_attribute(game, "player_names") if player_names is None else player_names, n, "player"
    )
    spend = choice.check_spending(WHERE, budget, evaluations)
    chosen = method
    if choice.is_auto(method, WHERE):
        choice.check_entry("gp_shapley", {}, spend, WHERE)
        spent = choice.count_affordable(n, spend, evaluations)
        chosen = choice.choose_method(n, spent, evaluations or choice.limit_exact(spend, spent))
    settings = choice.check_entry(chosen, parameters, spend, WHERE)
    _check_method(settings, n, evaluations)
    spend = spend if evaluations else choice.resolve_default(budget, settings, n)
    features = Features("player", (n,), np.arange(n, dtype=np.int32), names)
    parsed = _parse_methods(settings, spend, evaluations, features, seed_of(seed, chosen, 0))
    check_choice(WHERE, "on_error", on_error, ("fail", "record"))
    identity = _read_attribute(game, "identity") if identity is None else identity
    how = Evaluation(
        count_processes(n_jobs),
        None if batch is None else check_integer(WHERE, "batch", batch, 1),
        check_integer(WHERE, "retries", retries, 0),
        on_error,
        None if cache is None else check_path(f"{WHERE}: cache", cache),
        None if identity is None else str(identity),
    )
    with _report_progress(progress, chosen) as tell:
        values = Values(game, names, how, tell)
        with contextlib.suppress(MethodFailure):  # recorded for on_error="record", as of all other coalitions
            values.of(np.repeat([[False], [True]], n, axis=1))
        count = values.outputs
        given = _read_attribute(game, "output_names") if output_names is None else output_names
        outputs = (ONE,) if given is None and count == 1 else check_names("output_names", given, count, "output")
        record = _attribute_outputs(values, parsed, features, len(outputs), seed_of(seed, chosen, 0))
        if noise := values.find_noise(evaluations) or values.find_rounding():
            record.warning[:] = [noise] * len(outputs)
            warnings.warn(f"{WHERE}: {noise}", stacklevel=2)
    limits = {"budget": spend} if evaluations is None else {"evaluations": evaluations}
    settings |= limits if METHODS[chosen].sampled else {}
    each = [features] * len(outputs), [names] * len(outputs)
    return Explanation(
        **vars(record), about=Metadata("array", settings, GAME, "", 1, *each, None, list(outputs), outputs)
    )


def _parse_methods(
    settings: dict, spend: float | dict, evaluations: int | None, features: Features, seed: int
) -> MethodSettings:
    """Return the settings with the budget. Raises ShapelineError for an unknown design."""
    given = None
    if METHODS[settings["method"]].sampled:
        given = spend if evaluations is None else evaluations / features.d
        given = choice.parse_stopping_rule(given) or _reserve_ends(settings["method"], given, features.d)
    parsed = parse(settings, [given])
    size = parsed.size(features, parsed.resolve_budget(features, parsed.budgets[-1]), seed)  # before any evaluation
    if given is None:
        choice.check_fixed_cost(WHERE, parsed.name, size, evaluations, "players")
    return parsed


def _reserve_ends(method: str, budget: float, d: int) -> float:
    """Return a budget per player without the ends that a method's coalitions lack: a call evaluates these too."""
    spent, omitted = count_evaluations(budget, d), METHODS[method].omitted_ends
    return (spent - omitted) / d if omitted and spent < 2 ** min(d, 62) else budget


def _attribute_outputs(values: Values, parsed: MethodSettings, features: Features, count: int, seed: int) -> Record:
    """Return the scores of a game with `count` outputs, by the core of `explain`."""
    check_outputs(parsed, count)
    each, same = np.arange(count), np.zeros(count, int)
    options = Options(seed, sample_keys=same, on_error=values.how.on_error, outputs=count > 1)
    [record] = attribute(OutputGame(values.of, features), each, each, parsed, options)
    record.evaluations[:] = values.evaluations
    for details in record.details if values.file else ():
        details["reused"] = values.reused
    return record


def _count_players(game: object, n_players: object, names: object) -> int:
    """Return the number of players. Raises ShapelineError."""
    if not callable(game):
        raise ShapelineError(
            f"{WHERE}: game is {name_type(game)}; give a function from coalitions (K, n_players) to values (K,)"
        )
    declared = read_attribute(game, "n_players")
    if n_players is None and declared is None:
        if isinstance(names, str | set | frozenset) or not hasattr(names, "__len__"):
            raise ShapelineError(f"{WHERE}: n_players is missing; give their number, or a list of player_names")
        n_players = len(names)
    if isinstance(n_players, list | tuple):
        raise ShapelineError(f"{WHERE}: n_players is {name_type(n_players)}; give names as player_names=")
    n = check_integer(WHERE, "n_players", declared if n_players is None else n_players, 1)
    if n > MAX_PLAYERS:  # their names alone would not fit into memory
        raise ShapelineError(f"{WHERE}: n_players is {n} and can be at most {MAX_PLAYERS}; group the players")
    if declared is not None and n != declared:
        raise ShapelineError(f"{WHERE}: n_players is {n} and the game has {declared} players; leave n_players out")
    return n


def _read_attribute(game: object, name: str) -> object:
    """Return an attribute of a game; None where it is missing or unreadable."""
    value = read_attribute(game, name)
    return value if hasattr(value, "__iter__") and not callable(value) else None


def _check_method(settings: dict, n: int, evaluations: int | None) -> None:
    """Raise ShapelineError for a method that needs more than values of coalitions, or more evaluations."""
    name, method = settings["method"], METHODS[settings["method"]]
    if not method.is_design:
        able = ", ".join(name for name, one in METHODS.items() if one.is_design)
        raise ShapelineError(f"{WHERE}: {name} needs a model and its inputs; use one of {able}")
    if not evaluations:
        return
    least = min(method.count_least(parse(settings).arguments, n) + method.omitted_ends, 2 ** min(n, 62))
    if evaluations < least:
        raise ShapelineError(
            f"{WHERE}: evaluations is {evaluations} and {name} needs {least} for {n} players; raise it"
        )


@contextlib.contextmanager
def _report_progress(progress: object, label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield the callback for numbers of evaluated and remaining coalitions: a bar, or the user's function."""
    if callable(progress) or not (is_watched() if progress is None else progress):
        yield progress if callable(progress) else None
        return
    with tqdm(total=0, desc=label, unit=" evaluations", delay=0 if progress else MIN_SECONDS, leave=False) as shown:

        def tell(done: int, remaining: int) -> None:
            shown.total = done + remaining
            shown.update(done - shown.n)

        yield tell
