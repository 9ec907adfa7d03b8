"""A custom model that is a plain function: a written rule instead of a fitted model."""

import numpy as np
import pandas as pd


def granted(rows: pd.DataFrame) -> np.ndarray:
    """Probability of the second class, "yes", of each row, (n,); of more classes it would be (n, classes).

    The rows come as pandas read the file, because the dataset is a table_file. The rule reads income, debt and home.
    """
    income = rows["income"].fillna(2400)
    score = 2 * np.log(income / 2400) - rows["debt"] / 4000 + 0.7 * (rows["home"] == "owns")
    return 1 / (1 + np.exp(-(score + 0.6) / 0.6))
