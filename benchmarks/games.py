"""Writes the games of the accuracy page, whose Shapley values are known: models of the default run, models of
scikit-learn, and closed backends (docs/formats.md has the columns).

    snakemake --cores 2 results/{digits,cancer,reviews_sentence}/instances.parquet
    python -m benchmarks.games
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import accuracy_games
from benchmarks.accuracy_games import build_game
from shapeline.attribution.context import parse_game as game_of
from shapeline.statistics import accuracy
from shapeline.statistics.accuracy import Game, Terms, build_from_terms


def read_run(experiment: str, instances: int) -> np.ndarray:
    """Return values (n, 2^d) of the default run's model on the first instances of one of its experiments."""
    import yaml

    from shapeline import scores
    from shapeline.attribution.context import load_context, read_targets
    from shapeline.config import validation
    from shapeline.workflow import jobs, runs

    config = validation.load(yaml.safe_load(Path("config.yaml").read_text(encoding="utf-8")))
    settings = jobs.attribute_settings(config, experiment, "exact")
    entry = config.experiments[experiment]
    context = load_context(
        runs.name_model_files(config, entry.model)["weights"],
        runs.list_prepared_files(config.models[entry.model].dataset)["arrays"],
        game_of(settings),
        "cpu",
    )
    selected = scores.read_table(f"{config.results}/{experiment}/instances.parquet")[:instances]
    inputs = context.inputs(selected)
    [(features, _)] = context.buckets(inputs, selected)
    game = context.game(game_of(settings).value).having(features=features)
    masks = (np.arange(2**features.d)[:, None] >> np.arange(features.d) & 1).astype(bool)
    return game.values(inputs, masks, read_targets(selected))


def deep(d: int, terms: int, most: int, seed: int) -> Terms:
    """Return random terms of 1 to `most` features, of which a third must be absent."""
    rng = np.random.default_rng(seed)
    members = [rng.choice(d, rng.integers(1, most + 1), replace=False) for _ in range(terms)]
    turned = [rng.random(len(one)) < 1 / 3 for one in members]
    return Terms.of(
        d,
        rng.normal(size=terms),
        [one[~out] for one, out in zip(members, turned, strict=True)],
        [one[out] for one, out in zip(members, turned, strict=True)],
    )


def sentence(seed: int, words: int = 200) -> Terms:
    """Return a text: every eighth word counts, a third of these only with the word before; two fifths are inverted by
    the words after and two before together."""
    rng = np.random.default_rng(seed)
    speaks = np.arange(3, words - 3, 8) + rng.integers(-2, 3, size=len(range(3, words - 3, 8)))
    weight = rng.standard_t(3, size=len(speaks))
    beside = [[place - 1] if kind < 0.3 else [] for place, kind in zip(speaks, rng.random(len(speaks)), strict=True)]
    present = [[place, *more] for place, more in zip(speaks, beside, strict=True)]
    negated = speaks[rng.random(len(speaks)) < 0.4]
    turn = [-2 * weight[np.flatnonzero(speaks == place)[0]] for place in negated]
    faint = rng.normal(scale=0.02, size=words)
    return Terms.of(
        words,
        [*weight, *turn, *faint],
        [*present, *([place, place + 1, place - 2] for place in negated), *([place] for place in range(words))],
        [[]] * (len(weight) + len(turn) + words),
    )


def build_strokes(seed: int, side: int = 28) -> Terms:
    """Return an image of 28 x 28 pixels: a corner of a stroke counts with four pixels present, or one of two."""
    rng = np.random.default_rng(seed)
    place = np.arange(side * side).reshape(side, side)
    corners = [(r, c) for r in range(4, 23, 2) for c in range(6, 21, 2) if rng.random() < 0.5]
    four = [place[r : r + 2, c : c + 2].ravel() for r, c in corners]
    two = [place[r, c + 1 : c + 3] for r, c in corners]
    either = [([one], [other]) for one, other in two] + [([other], []) for _, other in two]
    spread = np.where(rng.random(side * side) < 0.3, rng.normal(scale=0.05, size=side * side), 0)
    ink = np.flatnonzero(spread)
    weight = rng.normal(size=len(four))
    or_weight = rng.normal(scale=0.5, size=len(two))
    return Terms.of(
        side * side,
        [*weight, *or_weight, *or_weight, *spread[ink]],
        [*four, *(p for p, _ in either), *([i] for i in ink)],
        [*([[]] * len(four)), *(a for _, a in either), *([[]] * len(ink))],
    )


def iterate_games() -> Iterator[Game]:
    """Return all games of the file."""
    made = accuracy_games
    yield build_game("digits, CNN", read_run("digits", 2), "pictures")
    yield name_game(made.digits(2), "digits, dense network", "pictures")
    yield build_game("cancer, 16 reference rows", read_run("cancer", 8), "columns")
    yield name_game(made.cancer(8, logistic=True), "cancer, logistic", "columns")
    yield name_game(made.wine(4), "wine", "columns")
    yield name_game(made.diabetes(8), "diabetes", "columns")
    yield build_game("a sentence, CNN", read_run("reviews_sentence", 1), "words")
    yield name_game(made.reviews(3), "reviews", "words")
    yield name_game(made.forest(2), "forest", "trees")
    yield name_game(made.boosted(2), "boosted trees", "trees")
    yield name_game(made.boosted_wide(2), "boosted trees, 100 columns", "trees")
    yield name_game(made.sparse_terms(2), "terms of 1 to 6 of 40", "deep")
    yield build_from_terms("terms of 1 to 12 of 30", [deep(30, 40, 12, seed) for seed in range(2)], "deep")
    yield build_from_terms("a text of 200 words", [sentence(seed) for seed in range(2)], "wide")
    yield build_from_terms("an image of 784 pixels", [build_strokes(0)], "wide")


def name_game(game: Game, name: str, kind: str) -> Game:
    """Return a game of the benchmark with the name of the file."""
    return dataclasses.replace(game, name=name, kind=kind)


if __name__ == "__main__":
    accuracy_games.write(iterate_games(), accuracy.STORED)
