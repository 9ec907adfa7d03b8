"""Strategic Subject List (Chicago Police 2017): the score and the 14 attributes of Sliwinski et al. (2019, §8.2)."""

from pathlib import Path

import numpy as np

from shapeline.datasets import columns

SCORE, PAROLE = "ssl_score", "parolee_i"
YES, SEX = {"y": 1, "n": 0}, {"f": 1, "m": 0, "x": 0}
# In decades. Table 4 of the paper has 1.8 for a band that ends below 2; the others are their middle.
AGES = {"less than 20": 1.8} | {f"{age}-{age + 10}": (age + 5) / 10 for age in range(20, 80, 10)}
# The order of Table 4. Race has codes, for it has no natural order.
ATTRIBUTES = {
    "age": ("predictor_rat_age_at_latest_arrest", AGES),
    "shooting victim": ("predictor_rat_victim_shooting_incidents", (0, np.inf)),
    "battery or assault victim": ("predictor_rat_victim_battery_or_assault", (0, np.inf)),
    "violent arrests": ("predictor_rat_arrests_violent_offenses", (0, np.inf)),
    "gang affiliation": ("predictor_rat_gang_affiliation", (0, 1)),
    "narcotics arrests": ("predictor_rat_narcotic_arrests", (0, np.inf)),
    "criminal trend": ("predictor_rat_trend_in_criminal_activity", (-np.inf, np.inf)),
    "weapon arrests": ("predictor_rat_uuw_arrests", (0, np.inf)),
    "is female": ("sex_code_cd", SEX),
    "race": ("race_code_cd", None),
    "weapon in 10 years": ("weapon_i", YES),
    "drug in 10 years": ("drug_i", YES),
    "on parole": (PAROLE, YES | {"": 0}),
    "last contact": ("latest_date", (1900, 2100)),
}


def read(paths: dict[str, Path]) -> dict:
    """Records as (n, 14) in their own units, the age in decades, and their scores (n,) from 0 to 500; no split.

    A record that lacks its score or an attribute is left out and counted, but no entry for parole means none.
    paths: official file name -> path. Raises ShapelineError with file and line.
    """
    (path,) = paths.values()
    names = (SCORE, *(column for column, _ in ATTRIBUTES.values()))
    table = columns.read(path, names)
    whole = np.all([table.texts[name] != "" for name in names if name != PAROLE], axis=0)
    table = table.rows(whole)
    inputs, categories = table.inputs(ATTRIBUTES)
    return {
        "inputs": inputs,
        "labels": table.numbers(SCORE, 0, 500),
        "categories": categories,
        "skipped": {"left_out_missing_value": int((~whole).sum())},
        "notes": [
            "age is the middle of its band in decades, 1.8 where it is below 20; no entry for parole means none",
            "the paper does not say what it did with missing values",
        ],
    }
