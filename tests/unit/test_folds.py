"""Cross-validation: every record is tested once, by a network that was not trained on it."""

import numpy as np

from benchmarks import folds
from shapeline.datasets import preparation
from shapeline.datasets.sources import TEST, TRAIN, VALIDATION


def test_every_record_is_tested_once():
    split = folds.split_folds(103, 5)
    assert ((split == TEST).sum(0) == 1).all() and abs((split == TEST).sum(1) - 103 / 5).max() < 12
    assert ((split == TRAIN).sum(1) > 60).all() and ((split == VALIDATION).sum(1) > 3).all()


def test_folds_of_cells_are_accurate(tmp_path, capsys):
    preparation.prepare("breast_cancer", {}, [], tmp_path)
    folds.main(str(tmp_path), "mlp", 2)
    lines = capsys.readouterr().out.splitlines()
    counts = np.array([line.replace(",", "").split()[2:5:2] for line in lines[:2]], int)
    share = 100 * counts[:, 0].sum() / 569
    assert counts[:, 1].sum() == 569 and share > 93 and lines[2].startswith(f"{share:.2f} % (")
