"""The optimal order of masking and insertion: against all orders of a small network, and on the page."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
import torch

from shapeline.attribution.run import Options, attribute
from shapeline.designs import orders
from shapeline.games import features as feature_kinds
from shapeline.games import references
from shapeline.games.game import Game
from shapeline.methods.settings import parse
from shapeline.metrics import log_odds
from shapeline.models import adapters

D = 4
FEATURES = feature_kinds.build("column", {"input_shape": [D], "feature_names": list("abcd"), "kind": "table"})
ZERO = references.Reference(np.zeros((1, D), np.float32))
X = np.random.default_rng(1).normal(size=(3, D)).astype(np.float32)


@pytest.fixture(scope="module")
def game() -> Game:
    """Of a network whose features interact, so that scores do not give the best order."""
    torch.manual_seed(3)
    network = torch.nn.Sequential(torch.nn.Linear(D, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    for layer in (network[0], network[2]):
        torch.nn.init.normal_(layer.weight, std=1.5)
    return Game(adapters.wrap(network, "logits", 3), ZERO, FEATURES)


def explained(game: Game, method: str = "shapley") -> pd.DataFrame:
    [found] = attribute(game, X, np.zeros(3, int), parse({"method": method}), Options())
    return pd.DataFrame(
        {
            "instance": range(3),
            "repeat": 0,
            "target": 0,
            "scores": list(found.scores.astype(np.float32)),
            "details": [json.dumps(details) if details else None for details in found.details],
            "evaluations": found.evaluations,
        }
    )


def measured(game: Game, rows: pd.DataFrame, fractions=None) -> pd.DataFrame:
    frame = log_odds.measure(rows, game, X, [(FEATURES, np.arange(3))], 0, fractions)
    return frame.set_index(["statistic", "instance"]).sort_index()


def test_the_best_order_has_the_best_area_of_all_orders(game):
    """Truth by all 4! orders, each masked, and inserted, feature by feature."""
    rows = explained(game)
    assert (rows["evaluations"] == 2**D).all()  # it costs the label nothing
    found = measured(game, rows)
    odds = game.having(value="log_odds")
    for instance in range(3):
        areas = {"deletion": [], "insertion": []}
        for order in itertools.permutations(range(D)):
            taken = np.argsort(order) < np.arange(D + 1)[:, None]
            for name, masks in (("deletion", ~taken), ("insertion", taken)):
                values = odds.values(X[[instance]], masks, np.zeros(1, int))[0]
                whole = odds.values(X[[instance]], np.ones((1, D), bool), np.zeros(1, int))[0]
                areas[name].append(np.trapezoid(values - whole, dx=1 / D))
        got = [found.loc[[(f"best_{name}_auc", instance)], "value"].item() for name in areas]
        assert got == pytest.approx([min(areas["deletion"]), max(areas["insertion"])], abs=1e-5)
        assert got[0] <= found.loc[[("deletion_auc", instance)], "value"].item() + 1e-9
        assert got[1] >= found.loc[[("insertion_auc", instance)], "value"].item() - 1e-9
    curve = found.loc["best_deletion"].reset_index()
    assert curve.groupby("instance")["x"].apply(list).tolist() == [[0, 0.25, 0.5, 0.75, 1]] * 3


def test_it_is_omitted_where_it_would_not_be_exact(game):
    names = set(measured(game, explained(game)).index.get_level_values(0))
    assert {"best_deletion", "best_insertion", "best_deletion_auc", "best_insertion_auc"} <= names
    coarse = measured(game, explained(game), [0.5, 1.0])
    sampled = measured(game, explained(game, "occlusion"))
    logits = measured(game, explained(game.having(value="logit")))
    for frame in (coarse, sampled, logits):
        assert not [name for name in frame.index.get_level_values(0) if name.startswith("best")]


def test_a_probability_of_one_has_no_odds_to_order_by():
    masks = np.array(list(itertools.product([False, True], repeat=2)))
    values = np.log([[0.2, 0.5, 0.4, 0.9], [0.2, 0.5, 0.4, 1.0]])
    first, second = orders.find_best_orders(masks, values, "log_probability")
    assert second == {} and sorted(first[orders.MASKING_ORDER]) == [0, 1]
    # Masked first is what leaves the lower value: of columns (0, 1) 0.5 has only 1 present, 0.4 only 0.
    assert first[orders.MASKING_ORDER] == [1, 0] and first[orders.INSERTION_ORDER] == [1, 0]
    assert orders.find_best_orders(masks, np.exp(values[:1]), "probability") == [first]
    assert orders.find_best_orders(masks[:3], values[:, :3], "log_probability") == [{}, {}]
