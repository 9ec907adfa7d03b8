"""Scores of people by authorities and courts: the Strategic Subject List and COMPAS, with their attributes."""

from pathlib import Path

import numpy as np

from shapeline.datasets import text

SSL_SCORE, PAROLE = "ssl_score", "parolee_i"
SSL_YES, SEX = {"y": 1, "n": 0}, {"f": 1, "m": 0, "x": 0}
# In decades. Table 4 of the paper has 1.8 for a band that ends below 2; the others are their middle.
SSL_AGES = {"less than 20": 1.8} | {f"{age}-{age + 10}": (age + 5) / 10 for age in range(20, 80, 10)}
# The order of Table 4. Race has codes, for it has no natural order.
SSL_ATTRIBUTES = {
    "age": ("predictor_rat_age_at_latest_arrest", SSL_AGES),
    "shooting victim": ("predictor_rat_victim_shooting_incidents", (0, np.inf)),
    "battery or assault victim": ("predictor_rat_victim_battery_or_assault", (0, np.inf)),
    "violent arrests": ("predictor_rat_arrests_violent_offenses", (0, np.inf)),
    "gang affiliation": ("predictor_rat_gang_affiliation", (0, 1)),
    "narcotics arrests": ("predictor_rat_narcotic_arrests", (0, np.inf)),
    "criminal trend": ("predictor_rat_trend_in_criminal_activity", (-np.inf, np.inf)),
    "weapon arrests": ("predictor_rat_uuw_arrests", (0, np.inf)),
    "is female": ("sex_code_cd", SEX),
    "race": ("race_code_cd", None),
    "weapon in 10 years": ("weapon_i", SSL_YES),
    "drug in 10 years": ("drug_i", SSL_YES),
    "on parole": (PAROLE, SSL_YES | {"": 0}),
    "last contact": ("latest_date", (1900, 2100)),
}


def read_ssl(paths: dict[str, Path]) -> dict:
    """Return the Strategic Subject List (Chicago Police 2017): 14 attributes (Sliwinski et al. 2019, §8.2) and scores.

    (n, 14), the age in decades, and 0 to 500; no split. Records that lack one are counted and left out. Raises
    ShapelineError.
    """
    (path,) = paths.values()
    names = (SSL_SCORE, *(column for column, _ in SSL_ATTRIBUTES.values()))
    table = text.read_columns(path, names)
    whole = np.all([table.texts[name] != "" for name in names if name != PAROLE], axis=0)
    table = table.rows(whole)
    inputs, categories = table.inputs(SSL_ATTRIBUTES)
    return {
        "inputs": inputs,
        "labels": table.numbers(SSL_SCORE, 0, 500),
        "categories": categories,
        "skipped": {"left_out_missing_value": int((~whole).sum())},
        "notes": [
            "age is the middle of its band in decades, 1.8 where it is below 20; no entry for parole means none",
            "the paper does not say what it did with missing values",
        ],
    }


COMPAS_ATTRIBUTES = {
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
COMPAS_SCORE, DAYS = "decile_score", "days_b_screening_arrest"
COMPAS_WINDOW = 30  # days; an arrest further off may not be the one that the screening was for


def read_compas(paths: dict[str, Path]) -> dict:
    """Return COMPAS scores of Broward County (Angwin et al. 2016), filtered as ProPublica did: (n, 9), deciles 1 to 10.

    Those left out are counted by their first reason; no split. Raises ShapelineError with file and line.
    """
    (path,) = paths.values()
    names = [COMPAS_SCORE, *(column for column, _ in COMPAS_ATTRIBUTES.values()), "is_recid", "score_text"]
    table, skipped = text.read_columns(path, tuple(names)), {}
    for reason, fits in COMPAS_FILTERS.items():
        kept = fits(table)
        skipped[f"left_out_{reason}"] = int((~kept).sum())
        table = table.rows(kept)
    inputs, categories = table.inputs(COMPAS_ATTRIBUTES)
    return {
        "inputs": inputs,
        "labels": table.numbers(COMPAS_SCORE, 1, 10),
        "categories": categories,
        "skipped": skipped,
        "notes": [
            f"filtered as in ProPublica's analysis: {sum(skipped.values()):,} rows left out, by reason in records"
        ],
    }


COMPAS_FILTERS = {
    "no_arrest_date": lambda table: table.texts[DAYS] != "",
    "arrest_over_30_days_off": lambda table: np.abs(table.numbers(DAYS)) <= COMPAS_WINDOW,
    "recidivism_unknown": lambda table: table.texts["is_recid"] != "-1",
    "ordinary_traffic_offence": lambda table: table.texts["c_charge_degree"] != "O",
    "no_score": lambda table: ~np.isin(table.texts["score_text"], ("N/A", "")),
}
