"""Make the files of the examples in this folder: invented loans and reviews, models, scores and images.

    python examples/own/make_files.py            # loans.csv, reviews.csv: committed, the same on every run
    python examples/own/make_files.py models     # beside them three pipelines, a network, scores, images

All data are synthetic: no person asked for these loans.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent


def loans(rows: int = 300) -> pd.DataFrame:
    """Invented applications: numbers, texts and missing cells; what is granted depends on income, debt and job."""
    random = np.random.default_rng(7)
    table = pd.DataFrame(
        {
            "application": np.arange(1000, 1000 + rows),
            "age": random.integers(18, 75, rows),
            "income": random.lognormal(7.8, 0.4, rows).round(0),
            "debt": random.exponential(4000, rows).round(0),
            "job": random.choice(["clerk", "driver", "nurse", "teacher"], rows),
            "home": random.choice(["rents", "owns", "with family"], rows, p=[0.5, 0.3, 0.2]),
            "married": random.random(rows) < 0.5,
        }
    )
    bonus = table["job"].map({"clerk": 0.0, "driver": -0.8, "nurse": 0.6, "teacher": 0.8})
    score = 2 * np.log(table["income"] / 2400) - table["debt"] / 4000 + bonus + 0.7 * (table["home"] == "owns")
    granted = score + random.logistic(0, 0.6, rows) > -0.6
    table["income"] = table["income"].mask(random.random(rows) < 0.06)
    table["home"] = table["home"].mask(random.random(rows) < 0.05)
    return table.assign(
        limit=(1500 + 900 * score + random.normal(0, 200, rows)).round(0), granted=np.where(granted, "yes", "no")
    )


def reviews(rows: int = 300) -> pd.DataFrame:
    """Invented remarks of five to nine words, whose class is that of the one word that judges."""
    random = np.random.default_rng(8)
    words = ["the", "room", "food", "staff", "street", "view", "was", "and", "very", "we", "found", "it"]
    judging = {"good": ["lovely", "great", "clean"], "bad": ["awful", "dirty", "rude"]}
    labels = random.choice(["good", "bad"], rows)
    lines = []
    for label in labels:
        line = list(random.choice(words, random.integers(4, 9)))
        line.insert(int(random.integers(0, len(line) + 1)), str(random.choice(judging[label])))
        lines.append(" ".join(line))
    return pd.DataFrame({"remark": lines, "opinion": labels})


def models(folder: Path = HERE) -> None:
    """Write pipelines that predict whether a loan is granted, and its limit, the latter also by boosted trees."""
    import skops.io
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    table = pd.read_csv(HERE / "loans.csv")
    numbers, texts = ["age", "income", "debt"], ["job", "home", "married"]

    def steps():
        return make_column_transformer(
            (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
            (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")), texts),
        )

    pipeline = make_pipeline(steps(), LogisticRegression()).fit(table[numbers + texts], table["granted"])
    skops.io.dump(pipeline, folder / "pipeline.skops")
    skops.io.dump(make_pipeline(steps(), Ridge()).fit(table[numbers + texts], table["limit"]), folder / "limits.skops")
    trees = make_pipeline(
        make_column_transformer((OrdinalEncoder(), texts), remainder="passthrough"),
        HistGradientBoostingRegressor(max_iter=30, random_state=0),
    )
    skops.io.dump(trees.fit(table[numbers + texts], table["limit"]), folder / "trees.skops")


def scores(folder: Path = HERE) -> None:
    """Scores made elsewhere, for the first 250 rows alone: how far each column is from its middle."""
    table = pd.read_csv(HERE / "loans.csv").head(250)
    numbers = table[["age", "income", "debt"]].rank(pct=True).fillna(0.5) - 0.5
    found = pd.DataFrame({"instance": table.index}).join(numbers).assign(job=0.0, home=0.0, married=0.0)
    found.to_parquet(folder / "scores.parquet")


def network(folder: Path = HERE) -> None:
    """A Keras network on the digits of scikit-learn that takes images with channels last and ends in a softmax."""
    import keras
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1) / 16
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(images, labels, epochs=8, verbose=0)
    model.save(folder / "network.keras")


def shapes(folder: Path = HERE) -> None:
    """Images of discs and of crosses, a hundred of each, in the folders shapes/disc and shapes/cross."""
    from PIL import Image

    random = np.random.default_rng(9)
    down, right = np.mgrid[:16, :16]
    for name in ("disc", "cross"):
        (folder / "shapes" / name).mkdir(parents=True, exist_ok=True)
        for number in range(100):
            y, x = (down - random.integers(5, 11)), (right - random.integers(5, 11))
            arms = (abs(y) < 2) & (abs(x) < 5) | (abs(x) < 2) & (abs(y) < 5)
            drawn = y**2 + x**2 < 17 if name == "disc" else arms
            noisy = np.where(drawn, 200, 40) + random.integers(-30, 31, drawn.shape)
            Image.fromarray(noisy.astype(np.uint8)).save(folder / "shapes" / name / f"{number}.png")


if __name__ == "__main__":
    if sys.argv[1:] == ["models"]:
        models()
        scores()
        network()
        shapes()
    else:
        loans().to_csv(HERE / "loans.csv", index=False)
        reviews().to_csv(HERE / "reviews.csv", index=False)
