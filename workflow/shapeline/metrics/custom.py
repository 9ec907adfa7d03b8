"""Custom metrics: functions in the user's files, by name."""

import numpy as np
import pandas as pd

from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.methods import dispatch


def measure(
    rows: pd.DataFrame,
    functions: dict[str, str],
    game: Game | None = None,
    inputs: np.ndarray | None = None,
    buckets: list[tuple[Features, np.ndarray]] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return what each function ("file.py:function") gives for the score rows, (rows,) numbers; lower is better.

    Each is given what it names of rows, model, inputs, buckets, reference, backend, seed. Its own errors pass with
    a note.
    """
    game = game or Game(None, None, None)
    available = {"rows": rows, "inputs": inputs, "buckets": buckets, "seed": seed}
    available |= {name: getattr(game, name) for name in ("model", "reference", "backend")}
    available["form"] = game.backend  # its name in functions written for earlier versions
    frames = []
    for name, file in functions.items():
        try:
            values = np.asarray(dispatch.resolve(file)(available))
        except Exception as error:  # whatever the user's own code raises: its traceback says most
            error.add_note(f"metric {name}: {file} failed")
            raise
        if values.shape != (len(rows),) or values.dtype.kind not in "buif":
            raise ShapelineError(
                f"metric {name}: {file} returned {values.dtype} of shape {values.shape}; return {len(rows)} "
                "numbers, one per row"
            )
        frames.append(rows[["instance", "repeat"]].assign(statistic=name, x=np.nan, value=values.astype(float)))
    return pd.concat(frames, ignore_index=True)
