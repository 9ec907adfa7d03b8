"""Jobs of experiments that explain a language model's answers: prompts with answers, and scores."""

import itertools
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from shapeline import scores
from shapeline.attribution import game_values
from shapeline.attribution.attribution_job import Job, Result, select_shard
from shapeline.attribution.row_store import ADDRESS, Table, digest, digest_file
from shapeline.datasets import folders
from shapeline.datasets.sources import expand
from shapeline.designs.design import count_evaluations
from shapeline.designs.stopping import StoppingCriterion
from shapeline.errors import MethodFailure, ShapelineError, rename_place
from shapeline.generation import estimates, game, language_models
from shapeline.generation.game import PromptGame, Removal
from shapeline.generation.prompts import WHERE, PromptRow, build_prompt, read_messages, read_prompts
from shapeline.methods.settings import Budget
from shapeline.metrics.bookkeeping import MEASURES_KEY
from shapeline.seeds import seed_of
from shapeline.versions import list_versions

log = logging.getLogger("shapeline")
STORED_SCHEMA = pa.schema([("coalition", pa.string()), *game_values.SCHEMA])
MAX_PROMPTS = 12  # number of prompts whose scores per answer token are stored, as many as a page shows
MAX_SCORES = 20_000  # parts times tokens whose scores are stored per prompt


@dataclass(frozen=True)
class PromptSettings:
    """The prompts of an experiment, from `settle_prompts`; measures: whether a metric needs them."""

    model: str
    path: str
    removal: str | Mapping[str, str]
    features: str
    max_tokens: int
    count: int
    measures: bool = False


@dataclass
class Reader:
    """A language model on its device, and the prompts of an experiment."""

    settings: PromptSettings
    device: str

    @cached_property
    def opened_model(self) -> tuple[language_models.LanguageModel, Any]:
        """The model and its tokenizer, loaded at first use."""
        model, tokenizer = language_models.load(str(expand(self.settings.model)))
        model.model.to(self.device)
        return model, tokenizer

    @cached_property
    def rows(self) -> list[PromptRow]:
        """The explained prompts of the file."""
        return read_prompts(expand(self.settings.path))[: self.settings.count]

    @property
    def removal(self) -> Removal:
        """The removal of parts."""
        removal = self.settings.removal
        return Removal(removal) if isinstance(removal, str) else Removal(removal["kind"], removal["text"])

    def play(self, row: PromptRow, own_ids: list[int] | None = None) -> PromptGame:
        """Return the game of a prompt; own_ids: of the model's generated answer, where known."""
        with rename_place(WHERE, row.where):
            model, tokenizer = self.opened_model
            chat = bool(getattr(tokenizer, "chat_template", None))
            built = build_prompt(row.question, row.context, self.settings.features, None, chat)
            encoder = game.open_encoder(model, tokenizer, chat, built)
            if own_ids is None:
                most = self.settings.max_tokens
                answers = [game.find_answer(model, encoder, built, row.answer, self.removal, most)]
            else:
                answers = [encoder.build_answer(own_ids)]
            if row.contrast is not None:
                answers.append(encoder.encode_answer(row.contrast, built.render(np.ones(built.d, bool))))
            return game.build_game(model, encoder, built, answers, self.removal)


def select_prompts(settings: Mapping[str, Any], store: str, device: str) -> pd.DataFrame:
    """Return a row per prompt: its question, parts, answer, ids, tokens, support, and the values of both ends."""
    reader, rows = Reader(PromptSettings(**settings["prompts"]), device), []
    for number, prompt in enumerate(reader.rows):
        played = reader.play(prompt)
        answer = played.source.answers[0]
        cache = CoalitionCache(reader.settings, played, store)
        empty, full = played.totals(np.repeat([[False], [True]], played.d, axis=1))
        cache.write()
        question = prompt.question if isinstance(prompt.question, str) else read_messages(prompt.question)[1][-1]
        columns = {"question": question, "parts": [*played.prompt.parts], "answer": answer.text}
        columns |= {"answer_ids": None if prompt.answer else [*answer.ids], "tokens": played.signed_tokens}
        columns |= {"contrast": prompt.contrast, "support": prompt.number_support(played.prompt.parts)}
        ends = {"value_full": full, "value_empty": empty, "label": full, "prediction": full}
        rows.append({"row": number, "game": question, "output": "", "players": columns["parts"], **columns, **ends})
    return pd.DataFrame(rows).rename_axis("instance").reset_index()


class CoalitionCache:
    """Values of a prompt's coalitions in the row store: read at creation; `write` stores new ones."""

    def __init__(self, settings: PromptSettings, played: PromptGame, store: str):
        full_prompt, answers = played.prompt.render(np.ones(played.prompt.d, bool)), played.source.answers
        self.played = played
        self.address = digest([full_prompt, played.prompt.parts, [[*answer.ids] for answer in answers]])
        folder = Path(store, "values", build_value_key(settings)) if store else None
        self.table = Table(folder, STORED_SCHEMA, growing=True)
        result = self.table.read({self.address})
        for row in result.itertuples():
            coalition = np.array([*row.coalition]) == "1"
            played.known[coalition.tobytes()] = np.array(row.values)
        played.seconds += float(result["seconds"].sum())
        self.stored = set(played.known)

    def write(self) -> None:
        """Store the new values."""
        new = [key for key in self.played.known if key not in self.stored]
        seconds = self.played.seconds / max(1, len(self.played.known))
        coalitions = ["".join("01"[bit] for bit in np.frombuffer(key, np.uint8)) for key in new]
        values = pd.Series([self.played.known[key] for key in new], dtype=object)
        rows = pd.DataFrame({ADDRESS: self.address, "coalition": coalitions, "values": values, "seconds": seconds})
        self.table.append(rows)
        self.table.flush()
        self.stored |= set(new)


def build_value_key(settings: PromptSettings) -> str:
    """Return the key of the table of values, from the model's files and the removal of parts."""
    files = folders.list_files(settings.model, weights=True)
    return digest([sorted(map(digest_file, files)), settings.removal, list_versions("torch", ["transformers"])])


@dataclass(frozen=True)
class PromptJob(Job):
    """A job of a method on prompts."""

    @cached_property
    def prompts(self) -> PromptSettings:
        """The settings of the prompts."""
        return PromptSettings(**self.settings.rows["prompts"])

    def explain_shard(self, index: int, count: int, on_error: str, progress: Callable) -> Result:
        """Return the rows of the method on a share of the prompts; the arguments are as for an AttributionJob."""
        reader = Reader(self.prompts, self.device)
        share = select_shard(scores.read_table(self.files.instances), index, count)
        report, frames = progress(len(share)), []
        for position, row in enumerate(share.to_dict("records"), 1):
            stored_ids = row["answer_ids"]
            ids = None if stored_ids is None else [*map(int, stored_ids)]
            played = reader.play(reader.rows[row["row"]], ids)
            cache = CoalitionCache(self.prompts, played, self.store)
            runs = itertools.product(range(self.settings.repeats), self.settings.method.budgets)
            frames += [self._build_row(played, row, repeat, budget, on_error) for repeat, budget in runs]
            cache.write()
            report(position, sum(frame["evaluations"] for frame in frames))
        rows_of_frames = [{name: frame.get(name) for name in scores.SCHEMA.names} for frame in frames]
        rows = pd.DataFrame(rows_of_frames, columns=scores.SCHEMA.names, dtype=object)
        rows = rows.sort_values(["instance", "repeat", "budget"], ignore_index=True)
        return self.join(rows, [build_value_key(reader.settings)])

    def _build_row(self, played: PromptGame, row: Mapping, repeat: int, budget: Budget, on_error: str) -> dict:
        """Return the score row of a prompt, with the reason of a failure."""
        keys = {"instance": row["instance"], "target": 0, "training_seed": 0, "randomised_layers": None}
        until = isinstance(budget, StoppingCriterion)
        keys |= {"repeat": repeat, "budget": None if until else budget, "evaluations": 0, "seconds": 0.0}
        ends = {"value_full": row["value_full"], "value_empty": row["value_empty"]}
        method = self.settings.method
        seed = seed_of(self.settings.game.seed, self.entry, repeat, int(row["instance"]))
        evaluations = 2**played.d if method.method.exact else played.d + 1
        if method.method.sampled and not until:
            spend = method.method.default_budget(method.arguments, played.d) if budget is None else budget
            evaluations = count_evaluations(spend, played.d)
        try:
            result = estimates.estimate(played, method, evaluations, "sum", seed)
        except ShapelineError as error:
            if on_error == "fail":
                raise
            status = error.status if isinstance(error, MethodFailure) else "no design"
            return {**keys, **ends, "status": status, "error": str(error)}
        error = result.standard_error
        return {
            **keys,
            **ends,
            "scores": result.scores.astype(np.float32),
            "standard_error": None if error is None or not np.isfinite(error).all() else error.astype(np.float32),
            "evaluations": result.evaluations,
            "seconds": result.seconds,
            "warning": result.warning,
            "status": "ok",
            "details": json.dumps(self._collect_details(played, row, result)),
        }

    def _collect_details(self, played: PromptGame, row: Mapping, found: estimates.Estimate) -> dict:
        """Return the measures of the scores, where requested, and the scores of the answer's tokens."""
        details: dict[str, Any] = {}
        if self.prompts.measures:
            inputs = {"game": played, "totals": found.scores, "half_widths": None, "value": "sum"}
            inputs |= {"method": found.method, "evaluations": found.evaluations}
            support = [*map(int, row["support"])] if len(row["support"]) else None
            seed = seed_of(self.settings.game.seed, int(row["instance"]))  # coalitions of its own
            measured = estimates.measure(SimpleNamespace(**inputs), None, support, seed)
            details[MEASURES_KEY] = {name: value for name, value in measured.items() if np.isfinite(value)}
        tokens = found.tokens
        if row["row"] < MAX_PROMPTS and tokens is not None and tokens.size <= MAX_SCORES:
            details["tokens"] = np.round(tokens, 5).tolist()
        return details
