"""Jobs of an experiment on games: its outputs, parts of its evaluations, and the scores of a method."""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.attribution import game_values
from shapeline.attribution.attribution_job import Job, Result
from shapeline.attribution.explanation import Explanation, build_rows
from shapeline.attribution.game_values import SLOW_SECONDS, WHERE, ValueRows, read_attribute
from shapeline.attribution.row_store import Table, digest, digest_file
from shapeline.attribution.run import Options, attribute
from shapeline.attribution.set_game import Evaluation, OutputGame, Values, check_names, check_outputs, hash_masks
from shapeline.datasets import sources
from shapeline.datasets.sources import source_files
from shapeline.designs.design import check_integer
from shapeline.errors import MethodFailure, ShapelineError, name_type, rename_place
from shapeline.games.features import Features
from shapeline.seeds import seed_of
from shapeline.versions import list_versions

log = logging.getLogger("shapeline")
PROGRESS_SECONDS = 5.0  # interval between two lines of progress


@dataclass(frozen=True)
class NamedGame:
    """A game of an experiment: its name and number, its players, and its identity in the row store."""

    name: str
    number: int
    play: Callable
    players: tuple[str, ...]
    output_names: Sequence[str] | None
    identity: str | None

    @property
    def features(self) -> Features:
        """The players as the features of an explanation."""
        d = len(self.players)
        return Features("player", (d,), np.arange(d, dtype=np.int32), self.players)


class Missing(Exception):
    """The error for coalitions (K, n) whose values are not known yet."""

    def __init__(self, masks: np.ndarray):
        super().__init__(f"{len(masks)} coalitions")
        self.masks = masks


class Known(Values):
    """The known values of a game; raises Missing instead of an evaluation."""

    def _evaluate(self, masks: np.ndarray) -> None:
        raise Missing(masks)


@dataclass(frozen=True)
class GameSource:
    """The source of the games of an experiment: the user's function, other files that it reads, and its seed."""

    function: str
    files: tuple[str, ...]
    seed: int


def parse_source(settings: Mapping[str, Any]) -> GameSource:
    """Return the source in a job's settings."""
    return GameSource(settings["game"], tuple(settings.get("game_files", ())), settings.get("seed", 0))


def build_games(source: GameSource, device: str) -> list[NamedGame]:
    """Return the games that the function of an experiment builds. Raises ShapelineError for other objects."""
    built = sources.resolve(source.function)({"seed": source.seed, "device": device})
    if not isinstance(built, Mapping):
        several = isinstance(built, list | tuple)
        built = {f"game {index}": game for index, game in enumerate(built)} if several else {"": built}
    if not built:
        raise ShapelineError(f"{source.function}: it returned no game; return one, or a list or mapping of games")
    with rename_place(WHERE, source.function):
        return [_find_game(str(name), number, game) for number, (name, game) in enumerate(built.items())]


def _find_game(name: str, number: int, game: object) -> NamedGame:
    n_players = read_attribute(game, "n_players")
    if not callable(game) or n_players is None:
        raise ShapelineError(
            f"{WHERE}: it returned {name_type(game)}; return a function from coalitions (K, n_players) to values "
            "(K,) that has n_players, as the classes of shapeline.games have"
        )
    n = check_integer(WHERE, "n_players", n_players, 1)
    players = check_names("player_names", read_attribute(game, "player_names"), n, "player")
    identity, outputs = (read_attribute(game, key) for key in ("identity", "output_names"))
    return NamedGame(name, number, game, players, outputs, identity if isinstance(identity, str) else None)


def select_outputs(settings: Mapping[str, Any], store: str, device: str) -> pd.DataFrame:
    """Evaluate both ends of each game, and return one row per output of each game with these values."""
    rows, source = [], parse_source(settings)
    for game in build_games(source, device):
        with rename_place(WHERE, source.function):
            ends = np.repeat([[False], [True]], len(game.players), axis=1)
            empty, full = _load(game, source, store, Evaluation(seconds=SLOW_SECONDS)).of(ends)
            unnamed = [""] if game.output_names is None and len(full) == 1 else None
            outputs = unnamed or check_names("output_names", game.output_names, len(full), "output")
        for output, low, high in zip(outputs, empty, full, strict=True):
            ends = {"value_full": high, "value_empty": low, "label": high, "prediction": high}
            rows.append({"game": game.name, "output": output, "row": game.number, "players": game.players, **ends})
    return pd.DataFrame(rows).rename_axis("instance").reset_index()


def _load(
    game: NamedGame, source: GameSource, store: str, how: Evaluation, known: pd.DataFrame | None = None
) -> Values:
    """Return the values of a game, which the row store stores; known: rows of values."""
    known = game_values.read_files(()) if known is None else known[known["game"] == game.number]
    folder = Path(store, "values", value_key(game, source)) if store else None
    rows = ValueRows(Table(folder, game_values.SCHEMA), known.drop(columns="game"))
    return Values(game.play, game.players, how, _make_logger(), rows)


def value_key(game: NamedGame, source: GameSource) -> str:
    """Return the key of the table of a game's values, from its files, identity, seed and number."""
    files = [*source_files(source.function), *source.files]
    facts = [source.function, sorted(map(digest_file, files)), source.seed, list_versions("function")]
    return digest([*facts, game.name, game.number, game.identity, game.players])


def _make_logger() -> Callable[[int, int], None]:
    """Return a function that logs the numbers of done and remaining evaluations every few seconds."""
    last, began = 0.0, time.monotonic()

    def log_progress(done: int, remaining: int) -> None:
        nonlocal last
        now = time.monotonic()
        if remaining == 0 or now - last > PROGRESS_SECONDS:
            last, seconds = now, (now - began) / max(done, 1)
            log.info(
                "evaluated %d coalitions, %.3g s each; %d left (%.0f s)", done, seconds, remaining, remaining * seconds
            )

    return log_progress


@dataclass(frozen=True)
class GameJob(Job):
    """A job of a method on games."""

    def evaluate_shard(self, path: str, index: int, count: int, on_error: str, metadata: dict) -> None:
        """Evaluate part `index` of the method's next coalitions, which depend on the files of earlier rounds."""
        earlier = game_values.read_files(self.files.get("earlier", ()))
        parts, done = {}, 0
        games = build_games(self._source, self.device)
        for game in games:
            missing = self._find_missing(game, earlier)
            parts[game.number] = missing[(index - done) % count :: count]
            done += len(missing)
        result = [self._tabulate(game, parts[game.number], on_error) for game in games]
        numbers = [game.number for game, rows in zip(games, result, strict=True) for _ in range(len(rows))]
        game_values.write_file(path, numbers, pd.concat(result, ignore_index=True), metadata)

    def _find_missing(self, game: NamedGame, known: pd.DataFrame) -> np.ndarray:
        """Return the unknown coalitions (K, n) that the method needs, of all repeats."""
        rows = ValueRows(Table(None, game_values.SCHEMA), known[known["game"] == game.number].drop(columns="game"))
        masks = [np.zeros((0, len(game.players)), bool)]
        for repeat in range(self.settings.repeats):
            try:
                self._attribute(game, Known(game.play, game.players, Evaluation(), None, rows), repeat, "record")
            except Missing as missing:
                masks.append(missing.masks)
        masks = np.concatenate(masks)
        return masks[pd.Series(hash_masks(masks), dtype=object).drop_duplicates().index]

    def _tabulate(self, game: NamedGame, masks: np.ndarray, on_error: str) -> pd.DataFrame:
        """Return the values of coalitions as rows of a table, without recorded failures."""
        values = _load(game, self._source, self.store, Evaluation(on_error=on_error, seconds=SLOW_SECONDS))
        with rename_place(WHERE, self._source.function):
            try:
                values.of(masks)
            except MethodFailure as failure:
                log.warning("%s", failure)
        log.info("%d coalitions, %d of them evaluated earlier", len(masks), values.reused)
        return values.select_rows(masks)

    def explain_shard(self, index: int, count: int, on_error: str, progress: Callable) -> Result:
        """Return the rows of the method on all outputs of all games; arguments as in AttributionJob."""
        known = game_values.read_files(self.files.get("values", ()))
        frames, keys, games = [], [], build_games(self._source, self.device)
        for game in games:
            keys.append(value_key(game, self._source))
            values = _load(game, self._source, self.store, Evaluation(on_error=on_error, seconds=SLOW_SECONDS), known)
            with rename_place(WHERE, self._source.function):
                rows = [self._build_rows(game, values, repeat, on_error) for repeat in range(self.settings.repeats)]
            if noise := self._find_noise(values) or values.find_rounding():
                log.warning("%s", noise)
                rows = [frame.assign(warning=noise) for frame in rows]
            frames += rows
            log.info("%d coalitions, %d of them evaluated earlier", values.evaluations, values.reused)
        rows = pd.concat(frames, ignore_index=True).assign(training_seed=0, randomised_layers=None)
        shared = games[0].features if len({game.players for game in games}) == 1 else None
        return self.join(rows.sort_values(scores.KEYS, ignore_index=True), keys, shared)

    def _build_rows(self, game: NamedGame, values: Values, repeat: int, on_error: str) -> pd.DataFrame:
        """Return the rows of one repeat; seconds include its evaluations and its estimator."""
        values.used = values.used[:0]
        explanations = self._attribute(game, values, repeat, on_error)
        share = self._outputs[self._outputs["row"] == game.number]
        seconds_spent = sum(values.file.seconds.get(key, 0.0) for key in values.used) / len(share)
        frames = []
        for explanation, budget in zip(explanations, self.settings.method.budgets, strict=True):
            is_ok = np.array(explanation.status) == "ok"  # a failed explanation counts all requested evaluations
            evaluations = np.where(is_ok, explanation.evaluations, values.evaluations)
            part = np.minimum(1.0, evaluations / max(1, values.evaluations))
            for details, evaluation_seconds in zip(explanation.details, seconds_spent * part, strict=True):
                details["evaluation_seconds"] = float(evaluation_seconds)
            seconds = explanation.seconds + seconds_spent * part
            explanation = dataclasses.replace(explanation, seconds=seconds, evaluations=evaluations)
            frames.append(build_rows(explanation, share["instance"], repeat, budget))
        return pd.concat(frames, ignore_index=True)

    def _find_noise(self, values: Values) -> str:
        """Return a warning if the game gives other values now than those stored by its jobs of parallel evaluations."""
        seconds = [values.file.seconds.get(key, 0.0) for key in values.used]
        jobs = max(1, len(self.files.get("values", ())))
        return values.repeat_some(values.used, sum(seconds) / max(1, len(seconds)), jobs)

    @cached_property
    def _source(self) -> GameSource:
        return parse_source(self.settings.rows)

    @cached_property
    def _outputs(self) -> pd.DataFrame:
        """The selected outputs of all games, read once for all repeats."""
        return scores.read_table(self.files.instances)

    def _attribute(self, game: NamedGame, values: Values, repeat: int, on_error: str) -> list[Explanation]:
        """Return the explanations of a game's outputs, one per budget."""
        share = self._outputs[self._outputs["row"] == game.number]
        indices = np.arange(len(share))
        check_outputs(self.settings.method, len(indices))
        options = Options(
            seed_of(self.settings.game.seed, self.entry, repeat),
            instances=share["instance"].to_numpy(),
            sample_keys=np.full(len(indices), game.number),
            on_error=on_error,
            device=self.device,
            outputs=len(indices) > 1,
        )
        outputs = OutputGame(values.of, game.features)
        return attribute(outputs, indices, indices, self.settings.method, options)
