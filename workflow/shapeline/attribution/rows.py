"""Rows of a score file: one label on the instances of a shard, every repeat and budget."""

import contextlib
import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from shapeline.attribution.explanation import Explanation
from shapeline.attribution.row_store import ADDRESS, FLUSH_SECONDS, Table
from shapeline.attribution.run import Options, attribute, waits, warm_up
from shapeline.attribution.subjects import Subject, targets
from shapeline.designs.stopping import Until
from shapeline.engine.question import Question
from shapeline.errors import ShapelineError
from shapeline.game import features as feature_kinds
from shapeline.game import references
from shapeline.game.features import Features
from shapeline.methods.registry import METHODS
from shapeline.scores import SCHEMA
from shapeline.seeds import seed_of
from shapeline.threads import openblas

MOMENT, PASSES = 0.1, 20  # seconds of a job's explanations made again for the clock's sake, and how often at most
SETTLED, CALM = 0.02, 2  # they are settled where so many passes in a row take no more than this share off
STORED = [field for field in SCHEMA if field.name not in ("training_seed", "randomised_layers")]  # the job's to say


@dataclass
class StoredRows:
    """Rows of earlier jobs, and where new ones are kept. addresses: of each instance and repeat (n, repeats)."""

    table: Table
    addresses: np.ndarray
    found: pd.DataFrame = field(default_factory=pd.DataFrame)

    def find(self) -> np.ndarray:
        """Read what is there; return which rows are missing (n, repeats)."""
        stored = self.table.read(self.addresses.ravel())
        self.found = stored.drop(columns=ADDRESS)
        return ~np.isin(self.addresses, stored[ADDRESS].unique())

    def keep(self, rows: pd.DataFrame, positions: np.ndarray, repeat: int) -> None:
        """Keep rows of the instances at these positions, one after another for each budget; none of an instance that
        failed."""
        addresses = np.resize(self.addresses[positions, repeat], len(rows))
        failed = addresses[(rows["status"] != "ok").to_numpy()]
        kept = rows.assign(**{ADDRESS: addresses})[~np.isin(addresses, failed)]
        if len(kept):
            self.table.append(kept)


def shard(selected: pd.DataFrame, index: int, count: int) -> pd.DataFrame:
    """The index-th of `count` consecutive parts, as equal as can be."""
    return selected.iloc[np.array_split(np.arange(len(selected)), count)[index]].reset_index(drop=True)


def explain_rows(
    subject: Subject,
    share: pd.DataFrame,
    settings: dict,
    label: str,
    options: Options | None = None,
    inputs: np.ndarray | None = None,
    stored: StoredRows | None = None,
) -> pd.DataFrame:
    """Score rows (columns of scores.SCHEMA) of one label on the instances of a shard, every repeat.

    settings: of the attribute job. options: on_error, progress and values; what else they say is taken from subject and
    settings. Sampled designs are seeded by (seed, label, repeat). A method with features of its own has its scores
    spread over the experiment's (features.spread). inputs: explained in place of the instances' own. stored: rows that
    need not be computed.
    """
    own, repeats = settings["method"].get("features"), settings.get("repeats", 1)
    options = _options(subject, settings, options or Options())
    explained = subject.with_features(own) if own else subject
    asked = explained.question(settings.get("value", "log_probability"))
    inputs = subject.inputs(share) if inputs is None else inputs
    missing = stored.find() if stored else np.ones((len(share), repeats), bool)
    frames = [stored.found] if stored and len(stored.found) else []
    some = np.flatnonzero(missing.any(axis=1))
    progress, warm = Progress(options.progress), False
    for features, places in explained.buckets(inputs[some], share.iloc[some]) if len(some) else ():
        question = asked.having(features=features)
        for repeat in range(repeats):
            positions = some[places][missing[some[places], repeat]]
            if not len(positions):
                continue
            part = share.iloc[positions].reset_index(drop=True)
            if not warm:
                seed = seed_of(settings["seed"], label, "warm-up")
                warm_options = dataclasses.replace(options, seed=seed)
                _warm_up(question, inputs[positions[:1]], part[:1], settings["method"], warm_options)
                warm = True
            seeded = dataclasses.replace(options, seed=seed_of(settings["seed"], label, repeat))
            if len(options.addresses):
                seeded = dataclasses.replace(seeded, addresses=np.asarray(options.addresses, object)[positions])
            frame = functools.partial(
                _rows, repeat=repeat, budgets=options.budgets, own=features if own else None, shown=subject.features
            )
            saver = Saver(stored, positions, repeat, part, frame)
            seeded = dataclasses.replace(
                seeded, progress=progress.on, save=saver.save, time_limit=settings.get("time_limit")
            )
            explain = functools.partial(_explain, question, inputs[positions], part, settings["method"])
            explanations = explain(seeded)
            if not (options.values or waits(question, options)):  # stored by now, and a server is not ours
                again = functools.partial(explain, dataclasses.replace(seeded, progress=None, save=None))
                _settle_seconds(explanations, again, MOMENT * len(part) / missing.sum())
            frames.append(frame(part, explanations))
            saver.end(frames[-1])
            progress.add(len(part), explanations)
    return pd.concat(frames, ignore_index=True)


@dataclass
class Progress:
    """The progress of several runs as one."""

    tell: Callable[[int, int], None] | None
    done: int = 0
    made: int = 0

    def on(self, n: int, evaluations: int) -> None:
        if self.tell:
            self.tell(self.done + n, self.made + evaluations)

    def add(self, n: int, explanations: list[Explanation]) -> None:
        self.done += n
        self.made += sum(int(explanation.evaluations.sum()) for explanation in explanations)


@dataclass
class Saver:
    """Keeps the rows of a run while it goes on, where it takes long; `frame` makes rows of explanations."""

    stored: StoredRows | None
    positions: np.ndarray
    repeat: int
    part: pd.DataFrame
    frame: Callable[[pd.DataFrame, list[Explanation]], pd.DataFrame]
    began: float = field(default_factory=time.monotonic)
    kept: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    waiting: list[tuple[np.ndarray, list[Explanation]]] = field(default_factory=list)

    def save(self, places: np.ndarray, explanations: list[Explanation]) -> None:
        """Note a chunk, and keep all that are noted every few seconds."""
        self.waiting.append((places, explanations))
        if self.stored and time.monotonic() - self.began >= FLUSH_SECONDS:
            for some, found in self.waiting:
                self.stored.keep(self.frame(self.part.iloc[some], found), self.positions[some], self.repeat)
                self.kept = np.concatenate([self.kept, some])
            self.waiting, self.began = [], time.monotonic()

    def end(self, rows: pd.DataFrame) -> None:
        """Keep what is not kept yet of all rows."""
        rest = np.setdiff1d(np.arange(len(self.part)), self.kept)
        if self.stored and len(rest):
            chosen = np.isin(np.resize(np.arange(len(self.part)), len(rows)), rest)
            self.stored.keep(rows[chosen], self.positions[rest], self.repeat)


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


def _rows(
    part: pd.DataFrame,
    explanations: list[Explanation],
    repeat: int,
    budgets: list,
    own: Features | None,
    shown: Features | None,
) -> pd.DataFrame:
    """Rows of explanations, one after another for each budget; own: the method's own features, whose scores are spread
    over those shown."""
    frames = []
    for explanation, budget in zip(explanations, budgets, strict=True):
        if own:
            # Of a cell's equal share there are none.
            spread = feature_kinds.spread(explanation.scores, own, shown)
            explanation = dataclasses.replace(
                explanation, scores=spread, uncertainty=None, pairs=None, pairs_uncertainty=None
            )
        frames.append(_rows_at(part, explanation, repeat, None if isinstance(budget, Until) else budget))
    return pd.concat(frames, ignore_index=True)


def _rows_at(share: pd.DataFrame, explanation: Explanation, repeat: int, budget: float | None) -> pd.DataFrame:
    flat = explanation.scores.reshape(len(share), -1).astype(np.float32)
    return pd.DataFrame(
        {
            "instance": share["instance"].to_numpy(),
            "target": explanation.target,
            "repeat": repeat,
            "budget": budget,
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
