"""Rows of a score file: one label on the instances of a shard, every repeat and budget."""

import contextlib
import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from shapeline.attribution.explanation import Explanation
from shapeline.attribution.run import Options, attribute, waits, warm_up
from shapeline.attribution.subjects import Subject, targets
from shapeline.designs.stopping import Until
from shapeline.engine.cache import Cache, key_of
from shapeline.engine.forms import Form
from shapeline.engine.question import Question
from shapeline.errors import ShapelineError
from shapeline.game import features as feature_kinds
from shapeline.game import references
from shapeline.methods.registry import METHODS
from shapeline.operations.versions import imported
from shapeline.seeds import seed_of
from shapeline.threads import openblas

MOMENT, PASSES = 0.1, 20  # seconds of a job's explanations made again for the clock's sake, and how often at most
SETTLED, CALM = 0.02, 2  # they are settled where so many passes in a row take no more than this share off


def cache_of(folder: str, files, code: Sequence[str], settings: dict, form: Form, device: str) -> Cache | None:
    """The cache of an attribute job; None where the folder is "". files: the job's input; code: what makes a value."""
    if not folder:
        return None
    facts = {name: settings.get(name) for name in ("features", "reference", "value", "seed")}
    facts["features"] = settings.get("method", {}).get("features", facts["features"])
    # The instances, for texts of one's own have numbers that say nothing of what they are.
    decisive = [files.weights, files.arrays, files.dataset_card, files.instances, *files.user, *files.reference, *code]
    made_with = {"form": form.name, "device": device, "versions": imported()}
    return Cache(folder, key_of(decisive, {**facts, **made_with}))


def shard(selected: pd.DataFrame, index: int, count: int) -> pd.DataFrame:
    """The index-th of `count` consecutive parts, as equal as can be."""
    return selected.iloc[np.array_split(np.arange(len(selected)), count)[index]].reset_index(drop=True)


def explained(selected: pd.DataFrame, settings: dict) -> pd.DataFrame:
    """The instances that a job explains: all selected, or so many as its settings say, drawn by seed; a larger number
    adds to a smaller one."""
    ids = selected["instance"].unique()  # of several labels an instance has a row for each
    order = np.random.default_rng(seed_of(settings["seed"], "trainings")).permutation(len(ids))
    return selected[selected["instance"].isin(ids[order[: settings.get("instances")]])].reset_index(drop=True)


def explain_rows(
    subject: Subject,
    share: pd.DataFrame,
    settings: dict,
    label: str,
    options: Options | None = None,
    inputs: np.ndarray | None = None,
) -> pd.DataFrame:
    """Score rows (columns of scores.SCHEMA) of one label on the instances of a shard, every repeat.

    settings: of the attribute job. options: on_error, progress and cache; what else they say is taken from subject and
    settings. Sampled designs are seeded by (seed, label, repeat). A method with features of its own has its scores
    spread over the experiment's (features.spread). inputs: explained in place of the instances' own.
    """
    method, own = settings["method"], settings["method"].get("features")
    options = _options(subject, settings, options or Options())
    explained = subject.with_features(own) if own else subject
    asked = explained.question(settings.get("value", "log_probability"))
    frames, done, made = [], 0, 0
    inputs = subject.inputs(share) if inputs is None else inputs
    for features, positions in explained.buckets(inputs, share):
        part, question = share.iloc[positions].reset_index(drop=True), asked.having(features=features)
        if not frames:
            seed = seed_of(settings["seed"], label, "warm-up")
            _warm_up(question, inputs[positions[:1]], part[:1], method, dataclasses.replace(options, seed=seed))
        for repeat in range(settings.get("repeats", 1)):
            seeded = dataclasses.replace(
                options,
                seed=seed_of(settings["seed"], label, repeat),
                progress=_from(options.progress, done, made),
                time_limit=settings.get("time_limit"),
            )
            explain = functools.partial(_explain, question, inputs[positions], part, method)
            explanations = explain(seeded)
            if not (options.cache or waits(question, options)):  # a cache has the values by now, a server is not ours
                again = functools.partial(explain, dataclasses.replace(seeded, progress=None))
                _settle_seconds(explanations, again, MOMENT * len(part) / len(share) / settings.get("repeats", 1))
            if own:
                for explanation in explanations:
                    # Of a cell's equal share there are none.
                    explanation.uncertainty = explanation.pairs = explanation.pairs_uncertainty = None
                    explanation.scores = feature_kinds.spread(explanation.scores, features, subject.features)
            for explanation, budget in zip(explanations, options.budgets, strict=True):
                frames.append(_rows(part, explanation, repeat, budget))
                made += int(explanation.evaluations.sum())
            done += len(part)
    return pd.concat(frames, ignore_index=True)


def _options(subject: Subject, settings: dict, options: Options) -> Options:
    rows = settings["method"].get("background")
    kind = {"kind": "background", "rows": rows}
    budget = settings.get("budget")
    return dataclasses.replace(
        options,
        budgets=[*settings["method"].get("snapshots", ()), Until(**budget) if isinstance(budget, dict) else budget],
        dataset=subject.dataset,
        all_points=subject.model is None,  # nothing was trained on some of them
        background=references.build(kind, subject.dataset, settings["seed"]) if rows else None,
        device=subject.device,
        timing=settings.get("timing", "batch"),
    )


def _from(progress: Callable[[int, int], None] | None, done: int, made: int) -> Callable[[int, int], None] | None:
    """The progress of one run after so many instances done and evaluations made."""
    return progress and (lambda n, evaluations: progress(done + n, made + evaluations))


def _settle_seconds(explanations: list[Explanation], again: Callable[[], list[Explanation]], moment: float) -> None:
    """Have seconds that another run would find too: explanations that took less than a moment are made again until it
    is over, or they get no shorter, and the fastest counts."""
    began, calm = time.perf_counter(), 0
    total = fastest = sum(np.nansum(explanation.seconds) for explanation in explanations)
    for _ in range(1, min(PASSES, math.ceil(moment / total)) if total else 1):
        for explanation, other in zip(explanations, again(), strict=True):
            explanation.seconds = np.minimum(explanation.seconds, other.seconds)
        before, fastest = fastest, sum(np.nansum(explanation.seconds) for explanation in explanations)
        calm = calm + 1 if fastest >= (1 - SETTLED) * before else 0
        if calm == CALM or time.perf_counter() - began > moment:  # of which the seconds are but a part
            return


def _explain(
    question: Question, inputs: np.ndarray, part: pd.DataFrame, method: dict, options: Options
) -> list[Explanation]:
    """Explain selected instances, whose inputs these are."""
    options = dataclasses.replace(options, instances=part["instance"].to_numpy())
    return attribute(question, inputs, targets(part), method, options)


def _warm_up(question: Question, inputs: np.ndarray, part: pd.DataFrame, method: dict, options: Options) -> None:
    """A first call sets up threads and traces, which is not the method's time. What it raises, the method will too.

    Peers are compiled as they run, for seconds that are no instance's.
    """
    warm_up(question, method, options)
    if question.features.d and question.model:
        openblas()
        with contextlib.suppress(ShapelineError):
            question.values(inputs, np.ones((2, question.features.d), bool))
    if options.timing == "per_instance" or METHODS[method["method"]].family == "peers":
        _explain(question, inputs, part, method, dataclasses.replace(options, progress=None))


def _known(numbers: np.ndarray | None, explanation: Explanation) -> list[np.ndarray | None]:
    """Those of each row, flat; None where the method has none, failed, or cannot tell."""
    if numbers is None:
        return [None] * len(explanation.status)
    flat = numbers.reshape(len(numbers), -1).astype(np.float32)
    return [
        row if status == "ok" and np.isfinite(row).all() else None
        for row, status in zip(flat, explanation.status, strict=True)
    ]


def _rows(share: pd.DataFrame, explanation: Explanation, repeat: int, budget: float | Until | None) -> pd.DataFrame:
    flat = explanation.scores.reshape(len(share), -1).astype(np.float32)
    return pd.DataFrame(
        {
            "instance": share["instance"],
            "target": explanation.target,
            "repeat": repeat,
            "budget": None if isinstance(budget, Until) else budget,
            "scores": [row if status == "ok" else None for row, status in zip(flat, explanation.status, strict=True)],
            "uncertainty": _known(explanation.uncertainty, explanation),
            "pairs": _known(explanation.pairs, explanation),
            "pairs_uncertainty": _known(explanation.pairs_uncertainty, explanation),
            "evaluations": explanation.evaluations,
            "seconds": explanation.seconds,
            "value_full": explanation.value_full,
            "value_empty": explanation.value_empty,
            "status": explanation.status,
            "error": explanation.error,
            "flag": explanation.flag,
            "extra": [json.dumps(extra) if extra else None for extra in explanation.extra],
        }
    )
