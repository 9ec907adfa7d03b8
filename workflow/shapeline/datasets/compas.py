"""COMPAS scores of Broward County (Angwin et al. 2016, ProPublica), filtered as ProPublica did; the decile score."""

from pathlib import Path

import numpy as np

from shapeline.datasets import columns

ATTRIBUTES = {
    "age": ("age", (0, 150)),
    "priors": ("priors_count", (0, np.inf)),
    "juvenile felonies": ("juv_fel_count", (0, np.inf)),
    "juvenile misdemeanors": ("juv_misd_count", (0, np.inf)),
    "other juvenile offences": ("juv_other_count", (0, np.inf)),
    "days from screening to arrest": ("days_b_screening_arrest", (-30, 30)),
    "is female": ("sex", {"male": 0, "female": 1}),
    "race": ("race", None),
    "felony charge": ("c_charge_degree", {"m": 0, "f": 1}),
}
SCORE, DAYS = "decile_score", "days_b_screening_arrest"
WINDOW = 30  # days; an arrest further off may not be the one that the screening was for


def read(paths: dict[str, Path]) -> dict:
    """Persons as (n, 9) in their own units and their decile scores (n,) from 1 to 10; no split.

    Left out and counted, each row by its first reason, are those that ProPublica's analysis left out. The file may lack
    the columns that name people. paths: official file name -> path. Raises ShapelineError with file and line.
    """
    (path,) = paths.values()
    names = [SCORE, *(column for column, _ in ATTRIBUTES.values()), "is_recid", "score_text"]
    table, skipped = columns.read(path, tuple(names)), {}
    for reason, fits in FILTERS.items():
        kept = fits(table)
        skipped[f"left_out_{reason}"] = int((~kept).sum())
        table = table.rows(kept)
    inputs, categories = table.inputs(ATTRIBUTES)
    return {
        "inputs": inputs,
        "labels": table.numbers(SCORE, 1, 10),
        "categories": categories,
        "skipped": skipped,
        "notes": [
            f"filtered as in ProPublica's analysis: {sum(skipped.values()):,} rows left out, by reason in records"
        ],
    }


FILTERS = {
    "no_arrest_date": lambda table: table.texts[DAYS] != "",
    "arrest_over_30_days_off": lambda table: np.abs(table.numbers(DAYS)) <= WINDOW,
    "recidivism_unknown": lambda table: table.texts["is_recid"] != "-1",
    "ordinary_traffic_offence": lambda table: table.texts["c_charge_degree"] != "O",
    "no_score": lambda table: ~np.isin(table.texts["score_text"], ("N/A", "")),
}
