"""Files of users, from `shapeline init` to scores: against brute force by the pipeline."""

import numpy as np
import pandas as pd
import pytest
import skops.io
import yaml
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from shapeline import datasets, scores
from tests.unit import games

RNG = np.random.default_rng(0)
N = 200
CHOSEN = [0.4, 0.3, 0.2, 0.1]
TABLE = pd.DataFrame(
    {
        "Lohn #netto": RNG.normal(2500, 800, N).round(2),
        "zip: {code}": RNG.choice(["02116", "90210", "10001", "00501"], N, p=CHOSEN),
        "null": RNG.choice(["None", "NA", "null", " x"], N, p=CHOSEN),
    }
)
TABLE["yes"] = np.where(TABLE["Lohn #netto"] > 2500, np.where(TABLE["null"] == "NA", "None", "NA"), "null")


def european(number: float) -> str:
    """1.234,50"""
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def fitted(columns: list[str]):
    encoder = make_column_transformer((StandardScaler(), columns[:1]), (OneHotEncoder(), columns[1:]))
    return make_pipeline(encoder, LogisticRegression()).fit(TABLE[columns], TABLE["yes"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_runs_from_init_to_the_scores_of_its_own_cells(fresh, suffix):
    """Decimal commas, digits and words that are texts, names that YAML and Snakemake would read in their own way."""
    folder = fresh.path / "in {run} #1"
    folder.mkdir()
    columns = [name for name in TABLE if name != "yes" and (suffix == "parquet" or "zip" not in name)]
    pipeline = fitted(columns)
    skops.io.dump(pipeline, folder / "it's {a}.skops")
    file = folder / f"d: {{b}}.{suffix}"
    if suffix == "csv":
        written = TABLE[[*columns, "yes"]].assign(**{columns[0]: TABLE[columns[0]].map(european)})
        written.to_csv(file, sep=";", index=False, encoding="cp1252")
    else:
        TABLE.to_parquet(file)
    fresh.shapeline("init", str(file), "--target", "yes", "--model", str(folder / "it's {a}.skops"))
    raw = yaml.safe_load((fresh.path / "shapeline.yaml").read_text(encoding="utf-8"))
    keys = {"separator": ";", "decimal": ",", "thousands": "."} if suffix == "csv" else {}
    assert {key: raw["datasets"]["d_b"][key] for key in keys} == keys
    raw["experiments"]["d_b"] |= {"reference": "mean", "value": "probability", "instances": {"count": 5}}
    fresh.configure(raw)
    fresh.snakemake("--cores", "2", "results/d_b/scores/exact/0-of-1.parquet")

    data = datasets.load(fresh.path / "data/prepared/d_b")
    assert data.card["classes"] == ["NA", "None", "null"] and data.card["feature_names"] == columns
    training = TABLE.iloc[data.ids[data.split == 0]]
    filled = [training[columns[0]].mean(), *(training[name].mode()[0] for name in columns[1:])]
    found = scores.read(fresh.path / "results/d_b/scores/exact")
    for _, row in found.iterrows():
        own = TABLE.loc[row["instance"], columns].tolist()

        def value(kept, own=own, place=row["target"]):
            cells = [own[i] if i in kept else filled[i] for i in range(len(own))]
            return pipeline.predict_proba(pd.DataFrame([cells], columns=columns))[0, place]

        np.testing.assert_allclose(row["value_full"], value({0, 1, 2}), atol=1e-6)
        np.testing.assert_allclose(row["scores"], games.shapley(games.of_sets(value, len(own))), atol=1e-5)
