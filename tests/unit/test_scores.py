"""Score files are complete or absent, and a folder is read only with exactly one set of shards."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shapeline import scores
from shapeline.errors import ShapelineError


def rows(instances) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "instance": list(instances),
            "target": 1,
            "repeat": 0,
            "budget": 4.0,
            "scores": [np.array([i, -i], np.float32) for i in instances],
            "evaluations": 8,
            "seconds": 0.5,
            "value_full": 1.0,
            "value_empty": 0.0,
            "status": "ok",
        }
    )


def test_round_trip_keeps_schema_and_metadata(tmp_path):
    path = tmp_path / "a" / "0-of-1.parquet"
    scores.write(path, rows([3, 1]), {"label": "exact"})
    assert pq.read_schema(path).names == scores.SCHEMA.names
    assert pq.read_table(path).schema.field("scores").type == scores.SCHEMA.field("scores").type
    assert scores.metadata(path) == {"schema_version": 3, "label": "exact"}
    found = scores.read(path)
    assert found["instance"].tolist() == [1, 3]
    assert scores.matrix(found).tolist() == [[1, -1], [3, -3]]
    assert found["error"].isna().all()


@pytest.mark.parametrize(
    ("version", "lacking"),
    [
        (1, ["standard_error", "interactions", "interactions_standard_error"]),
        (2, ["interactions", "interactions_standard_error"]),
        (2, ["interactions_standard_error"]),
        (2, []),
    ],
)
@pytest.mark.parametrize(("label", "seed"), [("lime", 0), ("lime@seed2", 2)])
def test_a_file_from_before_a_column_is_read(tmp_path, version, lacking, label, seed):
    every = [*lacking, "training_seed", "randomised_layers"]
    old = pa.schema([field for field in scores.SCHEMA if field.name not in every])
    absent = {name: None for name in old.names if name not in rows([2])}
    values = rows([2]).assign(**absent, flag="stopped at the cap", extra='{"rounds": 2.0}')
    values = values.assign(**{name: [[0.5, 0.25]] for name in ("uncertainty", "pairs", "pairs_uncertainty")})
    names = {new: before for before, new in scores.RENAMED_COLUMNS.items()}
    old = pa.schema([pa.field(names.get(field.name, field.name), field.type) for field in old])
    table = pa.Table.from_pandas(values, old, preserve_index=False)
    scores.write_table(tmp_path / "0-of-1.parquet", table, {"schema_version": version, "label": label})
    found = scores.read(tmp_path)
    assert list(found) == scores.SCHEMA.names and found[lacking].isna().all(axis=None)
    assert found["warning"].tolist() == ["stopped at the cap"] and found["details"].tolist() == ['{"rounds": 2.0}']
    for name in {"standard_error", "interactions", "interactions_standard_error"} - {*lacking}:
        assert found[name][0].tolist() == [0.5, 0.25]
    assert found["training_seed"].tolist() == [seed] and found["randomised_layers"].isna().all()
    assert scores.matrix(found).tolist() == [[2, -2]]


def test_the_rows_of_a_training_are_apart_from_those_of_randomised_models(tmp_path):
    every = [
        rows(ids).assign(training_seed=seed, randomised_layers=layers)
        for ids, seed, layers in (([1, 2], 0, None), ([1], 2, None), ([1], 0, 3))
    ]
    scores.write(tmp_path / "0-of-1.parquet", pd.concat(every), {})
    found = scores.read(tmp_path)
    assert len(found) == 4
    assert [scores.select_training(found, seed)["instance"].tolist() for seed in (0, 1, 2)] == [[1, 2], [], [1]]


def test_a_file_of_a_newer_schema_is_one_line(tmp_path):
    file = tmp_path / "0-of-1.parquet"
    scores.write(file, rows([2]), {"schema_version": scores.VERSION + 1})
    with pytest.raises(ShapelineError, match=rf"{file}: has version 4 .* reads up to 3; install a newer") as failure:
        scores.read(tmp_path)
    assert "\n" not in str(failure.value)


def test_a_folder_is_one_complete_set_of_shards(tmp_path):
    for i, part in enumerate(([0, 1], [2])):
        scores.write(tmp_path / f"{i}-of-2.parquet", rows(part), {})
    assert scores.read(tmp_path)["instance"].tolist() == [0, 1, 2]
    scores.write(tmp_path / "0-of-3.parquet", rows([0]), {})
    with pytest.raises(ShapelineError, match="2 of 2, 1 of 3"):
        scores.read(tmp_path)


def test_an_incomplete_or_empty_folder_is_named(tmp_path):
    with pytest.raises(
        ShapelineError, match="holds no shard; name a method's folder, <results>/<experiment>/scores/<method>"
    ):
        scores.read(tmp_path)
    scores.write(tmp_path / "1-of-2.parquet", rows([0]), {})
    with pytest.raises(ShapelineError, match="1 of 2"):
        scores.read(tmp_path)


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full_disk(table, path, **_):
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(pq, "write_table", full_disk)
    with pytest.raises(OSError, match="No space"):
        scores.write(tmp_path / "0-of-1.parquet", rows([0]), {})
    assert not list(tmp_path.iterdir())


def test_a_table_never_replaces_the_scores_that_it_is_made_from(tmp_path):
    path = tmp_path / "s.parquet"
    scores.write(path, rows(range(3)), {})
    before = path.read_bytes()
    with pytest.raises(ShapelineError, match=r"is a Parquet file, which would be lost; name a .csv file"):
        scores.to_csv(path, path)
    assert path.read_bytes() == before
    scores.to_csv(path, tmp_path / "s.csv")
    scores.to_csv(path, tmp_path / "s.csv")  # a table is replaced


def test_damage_is_named(tmp_path):
    path = tmp_path / "0-of-1.parquet"
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"instance": range(40), "scores": list(rng.normal(size=(40, 64)).astype(np.float32))})
    scores.write(path, rows, {"settings_digest": "x"})
    good = path.read_bytes()
    for cut in (0, 4, len(good) // 2, len(good) - 4):
        path.write_bytes(good[:cut])
        for read in (scores.read, scores.metadata):
            with pytest.raises(ShapelineError, match=rf"{path}: damaged \(.*\); remove it and run again"):
                read(path)
    start = good.index(b"PAR1") + 2000  # well inside the scores
    for place in range(start, start + 6000, 211):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(ShapelineError, match="damaged"):
            scores.read(path)


def test_an_image_with_several_labels_is_omitted_if_one_failed():
    both = pd.concat([rows([5, 7]), rows([5, 7]).assign(target=0, status=["ok", "time limit"])])
    repeated = pd.concat([both, both.assign(repeat=1, status="ok"), rows([8]).assign(budget=np.nan)])
    kept = scores.select_succeeded(repeated)
    assert sorted(zip(kept["instance"], kept["target"], kept["repeat"], strict=True)) == [
        *((5, target, repeat) for target in (0, 1) for repeat in (0, 1)),
        *((7, 0, 1), (7, 1, 1), (8, 1, 0)),
    ]


def test_a_failed_row_has_no_scores(tmp_path):
    table = rows([0, 1])
    table["scores"] = [None, table["scores"][1]]
    table["status"] = ["out_of_memory", "ok"]
    scores.write(tmp_path / "0-of-1.parquet", table, {})
    found = scores.read(tmp_path)
    assert found["scores"][0] is None
    assert scores.matrix(found[found["status"] == "ok"]).shape == (1, 2)


def test_a_missing_file_is_one_line(tmp_path):
    for call in (scores.read, scores.metadata, scores.read_table, lambda path: scores.to_csv(path, tmp_path / "o.csv")):
        with pytest.raises(ShapelineError, match=r"none: file not found; check the path"):
            call(tmp_path / "none")
