"""Figures of the page of a game."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd

from shapeline.report.elements import styles
from shapeline.report.figures import games
from shapeline.report.sections import games as sections

ENTRIES = {name: {"method": "gp_shapley", "is_control": False} for name in ("a", "b")}


def test_scores_have_a_row_per_player_and_an_interval_per_method():
    columns = {"a": (np.array([3.0, -1.0]), np.array([0.5, 0.1])), "b": (np.array([2.0, 1.0]), None)}
    [axes] = games.scores(["x", "y"], columns, styles(ENTRIES), "title", "score").axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["x", "y"]
    whiskers = axes.containers[0][2][0].get_segments()
    np.testing.assert_allclose(np.array(whiskers)[:, :, 0], [[3 - 0.98, 3 + 0.98], [-1.196, -0.804]])
    first, second = (container[0].get_ydata() for container in axes.containers)
    assert (second - first).max() < (first[1] - second[0]) / 2, "a dot is closer to another player's"


def test_rounding_errors_are_0():
    row = {"instance": [0], "repeat": 0, "budget": 4.0, "status": "ok"}
    frame = pd.DataFrame({**row, "scores": [[4.0, 2e-16, -1e-3]], "standard_error": [[1e-15, 0.5, 1e-4]]})
    scores, spread = sections._read(frame, 0)
    assert (scores.tolist(), spread.tolist()) == ([4, 0, -1e-3], [0, 0.5, 1e-4])


def test_convergence_plots_known_values():
    rows = [("a", 10, 0.4, np.nan), ("a", 20, 0.2, np.nan), ("b", 10, np.nan, 0.3)]
    frame = pd.DataFrame(rows, columns=["method", "evaluations", "predicted", "actual"])
    [axes] = games.convergence(frame, styles(ENTRIES), "nats").axes
    assert [line.get_label() for line in axes.lines] == ["a, predicted", "b, actual"]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [0.4, 0.2])
    axes.figure.canvas.draw()
    axes.figure.draw_without_rendering()
    [legend] = axes.figure.legends
    assert not legend.get_window_extent().overlaps(axes.get_window_extent()), "over the lines"
    assert {"0.2", "0.3", "0.4"} <= {tick.get_text() for tick in axes.get_yticklabels()}, "powers of ten only"
    assert games.convergence(frame.assign(predicted=np.nan, actual=np.nan), styles(ENTRIES), "nats") is None


def test_cost_counts_the_evaluations_of_a_game_once_for_all_its_outputs():
    """Two games, of 3 players with two outputs and of 5 players: 8 and 32 evaluations in 4 and 6 seconds."""
    instances = pd.DataFrame({"instance": [0, 1, 2], "row": [0, 0, 1], "players": [list("abc")] * 2 + [list("abcde")]})
    frame = pd.DataFrame(
        {
            "instance": [0, 1, 2],
            "evaluations": [8, 8, 32],
            "seconds": [2.0, 2.0, 7.0],
            "status": "ok",
            "details": ['{"evaluation_seconds": 2.0}', '{"evaluation_seconds": 2.0}', '{"evaluation_seconds": 6.0}'],
        }
    )
    shown = str(sections.cost_section(SimpleNamespace(instances=instances, scores={"exact": frame})).data)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", shown)
    assert cells == ["exact", "40", "5", "10", "0.250", "1", "100 %"]


def test_the_header_gives_the_reason_of_methods_that_failed():
    instances = pd.DataFrame({"instance": [0], "row": [0], "players": [list("abc")], "game": "", "output": ""})
    reason = "game: 1 of 8 evaluations failed, first coalition {a, b}: RuntimeError: diverged; correct the game"
    frame = pd.DataFrame(
        {
            "instance": [0],
            "status": "evaluation failed",
            "error": reason,
            "evaluations": 0,
            "details": None,
            "standard_error": None,
        }
    )
    results = SimpleNamespace(
        instances=instances,
        scores={"exact": frame},
        entries={"exact": {"method": "shapley"}},
        exact="exact",
        metrics={},
        settings={},
        experiment="wine",
    )
    shown = str(sections.header(results).data)
    assert f"exact failed: {reason}." in shown and "known error" not in shown
    named = re.findall("<b>(.+?)</b><span>(.+?)</span>", shown)
    assert (
        named[:3] == [("3", "players"), ("1", "output"), ("1", "method compared")]
        and ("1", "failed explanation") in named
    )
