"""A game as a table of its values, read from and written to the files of shapiq."""

import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from shapeline.designs.design import check_integer, enumerate_coalitions
from shapeline.errors import ShapelineError, first_line
from shapeline.files import atomic
from shapeline.games.validation_scores import build_identity, check_order, convert_values


class StoredGame:
    """A game whose values are in a table.

    Parameters
    ----------
    masks : bool array, shape (K, n_players)
        Coalitions, each once, True where a player takes part.
    values : array, shape (K,) or (K, n_outputs)
        Their values.
    player_names : sequence of str, optional
        Names of the players.

    Examples
    --------
    >>> import shapeline
    >>> from shapeline.games import StoredGame
    >>> game = StoredGame.of(lambda masks: masks.sum(axis=1) ** 2.0, 4)
    >>> game.write("squares.npz")
    >>> again = StoredGame.read("squares.npz")
    >>> shapeline.shapley_values(again).scores
    array([[4., 4., 4., 4.]])
    """

    def __init__(self, masks: np.ndarray, values: np.ndarray, player_names: Sequence[str] | None = None):
        check_order("StoredGame", masks, values, ("masks", "values"))
        given = np.asarray(masks, None if hasattr(masks, "dtype") else object)  # objects: rows of different lengths
        if given.ndim != 2 or not given.size or not np.isin(given, (0, 1)).all():
            wrong = f"masks are {given.dtype} of shape {given.shape}"
            raise ShapelineError(f"StoredGame: {wrong}; give (K, n_players) bool, True where a player takes part")
        self.masks, table = given.astype(bool), convert_values("StoredGame", values, len(given))
        self.values = table if table.shape[1] > 1 else table[:, 0]
        self.n_players, self.player_names = given.shape[1], None if player_names is None else list(player_names)
        self._places = pd.Index([mask.tobytes() for mask in self.masks], dtype=object)
        if not self._places.is_unique:
            raise ShapelineError("StoredGame: a coalition occurs twice in the table; give each once")
        self.identity = build_identity("StoredGame", self.masks, self.values)

    @classmethod
    def of(cls, game: Callable, n_players: int | None = None) -> "StoredGame":
        """Return all 2^n values of a game of at most 20 players."""
        n_players = getattr(game, "n_players", None) if n_players is None else n_players
        n = check_integer("StoredGame", "n_players", n_players, 1)
        masks = enumerate_coalitions(n, "StoredGame")
        return cls(masks, game(masks.copy()), getattr(game, "player_names", None))

    @classmethod
    def read(cls, path: str | Path) -> "StoredGame":
        """Return the game of an .npz or .json file of shapiq. Raises ShapelineError for other files."""
        try:
            path = os.path.expanduser(path)
            if os.fspath(path).endswith(".json"):
                return cls(*_read_json(path))
            with np.load(path, allow_pickle=False) as file:
                masks, values, n = file["coalitions"], file["values"], int(file["n_players"])
        except (OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, BadZipFile, zlib.error) as error:
            reason = "no arrays" if "allow_pickle" in str(error) else first_line(error)  # numpy advises to unpickle it
            remedy = "give a file of shapiq's Game.save or Game.save_values"
            raise ShapelineError(f"StoredGame: {path} is not a game of shapiq ({reason}); {remedy}") from error
        if masks.shape[1:] != (n,):
            shapes = f"{path} has {n} players and coalitions of shape {masks.shape}"
            raise ShapelineError(f"StoredGame: {shapes}; give one row per coalition with one column per player")
        return cls(masks, values)

    def write(self, path: str | Path) -> None:
        """Write the values as an .npz file that ``shapiq.Game.load_values`` reads."""
        if self.values.ndim != 1:
            raise ShapelineError("StoredGame: shapiq's files hold one value per coalition; write one output at a time")
        empty = self.values[~self.masks.any(axis=1)]
        with atomic(path) as partial, open(partial, "wb") as stream:
            np.savez_compressed(
                stream,
                values=self.values,
                coalitions=self.masks,
                n_players=self.n_players,
                normalization_value=float(empty[0]) if len(empty) else 0.0,
            )

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return the values of coalitions (K, n_players). Raises ShapelineError for one that is not stored."""
        positions = self._places.get_indexer([mask.tobytes() for mask in np.asarray(masks, bool)])
        if (positions < 0).any():
            missing = np.flatnonzero(np.asarray(masks)[positions < 0][0]).tolist()
            raise ShapelineError(f"StoredGame: the coalition of players {missing} is not stored; give its value too")
        return self.values[positions]


def _read_json(path: str) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
    """Return coalitions, values and names of a .json file, whose keys are players as in "0,2", or "Empty"."""
    with open(path, encoding="utf-8") as stream:
        content = json.load(stream)
    masks = np.zeros((len(content["data"]), content["metadata"]["n_players"]), bool)
    for mask, players in zip(masks, content["data"], strict=True):
        mask[[] if players == "Empty" else list(map(int, players.split(",")))] = True
    return masks, np.array(list(content["data"].values()), float), content["metadata"].get("player_names")
