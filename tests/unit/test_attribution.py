"""From a method's name to rows: known scores, counts of evaluations, failures as rows, independence of instances."""

import dataclasses
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.ndimage import gaussian_filter

import shapeline
from shapeline import scores as score_files
from shapeline.attribution import attribution_job, context, sampling, selection
from shapeline.attribution import attribution_job as rows_module
from shapeline.attribution.attribution_job import STORED, StoredRows, select_shard
from shapeline.attribution.context import ExplanationContext, GameSettings, score_addresses
from shapeline.attribution.context import parse as parse_job
from shapeline.attribution.game_values import VALUES, ValueStore
from shapeline.attribution.row_store import Table
from shapeline.datasets import loading, preparation
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games import execution, references
from shapeline.games import features as feature_kinds
from shapeline.games.features import Features
from shapeline.games.references import Reference
from shapeline.methods import registry
from shapeline.methods.settings import parse
from shapeline.models import adapters, architectures, classifier, storage
from tests.unit import shortcuts
from tests.unit.test_game_jobs import Files

D = 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, D)).astype(np.float32)
WEIGHTS = RNG.normal(size=D).astype(np.float32)


def linear() -> torch.nn.Module:
    """Logits (w @ x, 0): under the value `logit` of class 0 the game is additive, with terms w_i (x_i - r_i)."""
    layer = torch.nn.Linear(D, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.stack([WEIGHTS, np.zeros(D)])))
        layer.bias.copy_(torch.tensor([0.3, 0.0]))
    return layer


EXACT_ON_LINEAR = {
    "shapley": {},
    "banzhaf": {},
    "myerson": {"graph": "chain"},
    "l_shapley": {"graph": "chain", "order": 1},
    "c_shapley": {"graph": "chain", "order": 2, "weights": "myerson"},
    "c_shapley_regression": {"order": 3},
    "kernel_shap": {},
    "sample_shapley": {},
    "lime": {"ridge": 0.0},
    "occlusion": {},
}


@pytest.mark.parametrize("method", EXACT_ON_LINEAR)
def test_linear_models_are_explained_exactly(method):
    parameters = EXACT_ON_LINEAR[method]
    found = shapeline.explain(
        linear(), X, method, reference="zero", features="column", target=0, value="logit", budget=4, **parameters
    )
    assert found.scores == pytest.approx(WEIGHTS * X, abs=1e-5)
    assert found.status == ["ok"] * len(X)
    assert found.value_full - found.value_empty == pytest.approx((WEIGHTS * X).sum(1), abs=1e-5)


def test_gradients_of_a_linear_model_by_hand():
    def log_prob_gradient(x):  # of log softmax(w @ x + 0.3, 0) for class 0: (1 - p) w
        return (1 - 1 / (1 + np.exp(-(x @ WEIGHTS + 0.3))))[:, None] * WEIGHTS

    signed = shapeline.explain(linear(), X, "gradient_x_input", reference="zero", features="column", target=0)
    unsigned = shapeline.explain(linear(), X, "saliency", reference="zero", features="column", target=0)
    assert signed.scores == pytest.approx(log_prob_gradient(X) * X, abs=1e-5)
    assert unsigned.scores == pytest.approx(np.abs(log_prob_gradient(X)), abs=1e-5)
    assert (signed.evaluations == 1).all()


@pytest.mark.parametrize("method", sorted(name for name, method in registry.METHODS.items() if method.is_design))
def test_the_evaluations_reported_are_the_coalitions_evaluated(method):
    seen = []

    def probabilities(rows):
        seen.append(np.asarray(rows).copy())
        p = 1 / (1 + np.exp(-(rows @ WEIGHTS)))
        return np.stack([p, 1 - p], 1)

    graph = {"graph": "chain"} if "graph" in registry.METHODS[method].parameters.model_fields else {}
    more = {"reference": "zero", "features": "column", "target": 0, "budget": 6, **graph}
    found = shapeline.explain(probabilities, X[:1], method, **more)
    evaluated = {row.tobytes() for row in np.concatenate(seen)}
    ends = {X[:1].tobytes(), np.zeros((1, D), np.float32).tobytes()}
    counted = found.evaluations[0]
    assert len(evaluated - ends) <= counted <= len(evaluated)  # the ends are always known, charged only where used
    if registry.METHODS[method].sampled:
        assert counted <= 6 * D


def test_a_design_is_built_once_for_equal_settings():
    features = Features("column", (D,), np.arange(D, dtype=np.int32))

    def made(budget: float, seed: int):
        return parse({"method": "kernel_shap"}, [budget]).design(features, budget, seed)

    first = made(4, 1)
    assert made(4, 1) is first and made(4, 2) is not first and made(3, 1) is not first


def test_predicted_class_is_the_default_target_and_random_is_seeded_by_instance():
    found = shapeline.explain(linear(), X, "random", reference="zero", features="column")
    assert found.target.tolist() == (X @ WEIGHTS + 0.3 < 0).astype(int).tolist()
    assert (found.evaluations == 0).all()
    again = shapeline.explain(linear(), X[:2], "random", reference="zero", features="column")
    assert (again.scores == found.scores[:2]).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "kernel_shp"}, "Did you mean 'kernel_shap'"),
        ({"method": "lime", "rige": 1.0}, "lime: there is no parameter 'rige'. Did you mean 'ridge'"),
        ({"backgroud": X}, "no parameter 'backgroud'. Did you mean 'background'"),
        ({"evaluation": 9}, "no parameter 'evaluation'. Did you mean 'evaluations'"),
        ({"features": [0, 1]}, "give one per column, or groups as name -> columns"),
        ({"nsamples": 9}, "no parameter 'nsamples'. Did you mean 'evaluations'"),
        ({"max_order": 2}, "no parameter 'max_order'. Did you mean 'method'"),
        ({"baselines": 2}, "no parameter 'baselines'. Did you mean 'reference'"),
        ({"n_jobs": 2}, "no parameter 'n_jobs'; leave it out.$"),
        ({"method": "saliency", "nsamples": 9}, "no parameter 'nsamples'; leave it out.$"),
        ({"method": "kernel_shap", "budget": 1}, "minimum for d = 6 is 12"),
        ({"method": "l_shapley", "order": -1}, "order"),
        ({"reference": "meen"}, "Did you mean 'mean'"),
        ({"reference": np.zeros(3)}, "shape"),
        ({"features": "pixel"}, "does not fit"),
        ({"target": [0, 1]}, rf"target has shape \(2,\) and there are {len(X)} inputs; give one value for all, or one"),
        ({"y": [0, 1]}, r"y has shape \(2,\) and there are"),  # also where nothing reads it
        ({"target": 0.5}, "as whole numbers"),
        ({"budget": "4"}, "budget is '4'; give a number above 0"),
        ({"budget": float("nan")}, "budget is nan"),
        ({"budget": 0}, "budget is 0"),
        ({"budget": 1e308}, r"budget is 1e\+308; give a number above 0 and at most 1e\+08"),
        ({"inputs": np.full((2, 6), 1e300)}, "hold numbers that the model is not given as they are.* at most 3.4e38"),
        ({"inputs": X * 1j}, "inputs: they are complex; give numbers"),
        ({"method": "external", "path": "none.parquet"}, "none.parquet: there is no such file of scores"),
        ({"method": "peer_lime_image"}, rf"explains data of kind image, not inputs of shape \({len(X)}, 6\)"),
        ({"method": "integrated_gradients", "steps": 1}, "greater than or equal to 2; give another value.$"),
    ],
)
def test_a_mistake_is_one_line(arguments, words):
    with pytest.raises(ShapelineError, match=words) as failure:
        shapeline.explain(linear(), **{"inputs": X, "features": "column", **arguments})
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("what", ["inputs", "reference", "background"])
def test_images_with_nan_are_refused_by_name(what):
    pictures = np.zeros((3, 1, 4, 4), np.float32)
    pictures[2, 0, 1, 1] = np.nan
    with pytest.raises(ShapelineError, match=f"{what}: the image at position 2 holds NaN; give numbers"):
        shapeline.explain(linear(), **{"inputs": np.zeros((1, 1, 4, 4)), what: pictures})
    with pytest.raises(ShapelineError, match="inputs: they hold NaN, which in images means a masked pixel"):
        shapeline.explain(lambda images: 1 / 0, pictures[:, 0])


@pytest.mark.parametrize("target", [None, 0])
def test_a_network_that_does_not_fit_the_inputs_is_refused_with_their_shape(target):
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    with pytest.raises(ShapelineError, match=r"fails on inputs of shape \(2, 1, 4, 4\): .* 3 channels") as failure:
        shapeline.explain(network, np.zeros((2, 1, 4, 4)), reference="zero", target=target)
    assert "\n" not in str(failure.value)


def test_an_instance_may_have_its_own_reference():
    def probabilities(rows):
        p = 1 / (1 + np.exp(-rows.reshape(len(rows), -1).mean(1)))
        return np.stack([p, 1 - p], 1)

    images = RNG.random((3, 1, 4, 4)).astype(np.float32)
    found = shapeline.explain(probabilities, images, "occlusion", reference={"kind": "blur", "sigma": 1.0}, target=0)
    blurred = np.stack([gaussian_filter(image, 1.0, mode="nearest") for image in images[:, 0]])
    assert found.value_empty == pytest.approx(probabilities(blurred)[:, 0], abs=1e-6)
    one = shapeline.explain(probabilities, images[1:2], "occlusion", reference={"kind": "blur", "sigma": 1.0}, target=0)
    assert one.scores == pytest.approx(found.scores[1:2], abs=1e-7)


class Fragile(torch.nn.Module):
    """Runs out of memory on a row whose first column is 9, in any batch."""

    def forward(self, x):
        if (x[:, 0] == 9).any():
            raise torch.OutOfMemoryError("CUDA out of memory")
        return torch.stack([x.sum(1), torch.zeros(len(x))], 1)


def run(model, inputs, **options):
    features = Features("column", (D,), np.arange(D, dtype=np.int32), ())
    return shortcuts.attribute(
        adapters.wrap(model, n_classes=2),
        inputs,
        np.zeros(len(inputs), int),
        {"method": "occlusion"},
        features,
        Reference(np.zeros((1, D), np.float32)),
        **options,
    )[0]


def test_a_declared_failure_is_a_row_and_affects_its_instance_only():
    inputs = X.copy()
    inputs[2, 0] = 9
    found = run(Fragile(), inputs)
    assert [status == "ok" for status in found.status] == [True, True, False, True, True]
    assert "memory" in found.error[2]
    assert np.isnan(found.scores[2]).all()
    assert np.isfinite(found.scores[[0, 1, 3, 4]]).all()
    with pytest.raises(MethodFailure):
        run(Fragile(), inputs, on_error="fail")


def test_a_nan_stops_and_names_model_and_instance():
    class Broken(torch.nn.Module):
        def forward(self, x):
            return torch.stack([x.sum(1), torch.where(x[:, 0] == 9, torch.nan, 0.0)], 1)

    inputs = X.copy()
    inputs[3, 0] = 9
    with pytest.raises(ShapelineError, match="model 'Broken', instance 40,"):
        run(Broken(), inputs, instances=[10, 20, 30, 40, 50])


def explain_shards(count: int, batch: int) -> pd.DataFrame:
    """Return rows of a sampled method with two repeats, in `count` shards, at a batch size."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(D, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

    class Data:
        inputs = X

    features = Features("column", (D,), np.arange(D, dtype=np.int32), ())
    subject = ExplanationContext(adapters.wrap(network), Data, features, Reference(np.zeros((1, D), np.float32)))
    selected = pd.DataFrame({"instance": [7, 3, 9, 1, 5], "row": range(5), "prediction": [0, 1, 0, 1, 0]})
    settings = {
        "method": {"method": "kernel_shap"},
        "budget": 3.0,
        "repeats": 2,
        "seed": 0,
        "features": {"kind": "column"},
    }
    parts = [
        shortcuts.explain_rows(
            subject, select_shard(selected, i, count), settings, "kernel", execution.ExecutionBackend("plain", batch)
        )
        for i in range(count)
    ]
    return pd.concat(parts).sort_values(["instance", "repeat"], ignore_index=True)


def test_scores_do_not_depend_on_shards_or_batch_size():
    one, four = explain_shards(1, 64), explain_shards(4, 1)
    assert one[["instance", "repeat", "evaluations"]].equals(four[["instance", "repeat", "evaluations"]])
    assert np.stack(one["scores"]) == pytest.approx(np.stack(four["scores"]), abs=1e-5)
    first, second = (np.stack(one.loc[one["repeat"] == repeat, "scores"]) for repeat in (0, 1))
    assert not np.allclose(first, second)  # another repeat is another design


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> tuple[ExplanationContext, pd.DataFrame]:
    """Digits in eight patches with a network, and twenty of them to explain."""
    folder = tmp_path_factory.mktemp("digits")
    preparation.prepare("digits", {"source": "digits", "classes": [3, 8], "seed": 0}, [], folder)
    dataset = loading.load(folder)
    model = architectures.build("digits_cnn", side=8, channels=1, seed=0)
    features = feature_kinds.build({"kind": "patch", "size": [2, 4]}, dataset.card)
    subject = ExplanationContext(model, dataset, features, references.build("mean", dataset, 0), folder=folder)
    return subject, selection.select(subject, seed=0, count=20)


def test_a_shard_without_instances_is_an_empty_table(pictures, tmp_path):
    """As of `fewer_ok`: the number of shards is planned for the requested instances."""
    subject, selected = pictures
    weights, instances = tmp_path / "weights.safetensors", tmp_path / "instances.parquet"
    storage.save(subject.model, weights)
    selection.write(instances, selected[:2], {"cpu": execution.ExecutionBackend("plain", 8)}, {})
    arrays, card = (str(subject.folder / name) for name in ("arrays.npz", "card.json"))
    files = Files(instances=str(instances), weights=[str(weights)], arrays=arrays, dataset_card=card)
    settings = parse_job({"method": {"method": "occlusion"}, "seed": 0, "features": {"kind": "patch", "size": [2, 4]}})
    job = attribution_job.AttributionJob(settings, "occlusion", files, "cpu")
    shares = [job.explain_shard(index, 3, "fail", lambda n: lambda *_: None).rows for index in range(3)]
    assert [len(rows) for rows in shares] == [1, 1, 0]
    score_files.write(tmp_path / "2-of-3.parquet", shares[2], {})
    assert score_files.read(tmp_path / "2-of-3.parquet").empty


OF_EVERY_FAMILY = {
    "exact": {"method": "banzhaf"},
    "sampled": {"method": "kernel_shap"},
    "gradient": {"method": "integrated_gradients"},
    "hierarchical": {"method": "h_shap", "min_size": 1},
    "data": {"method": "parzen", "sigma": 2.0},
    "control": {"method": "random"},
}


@pytest.mark.parametrize("family", [*OF_EVERY_FAMILY, "intermediate_budgets", "spread"])
def test_rows_stored_by_chunk_equal_those_of_the_run(pictures, tmp_path, monkeypatch, family):
    """Whatever the order in which instances are taken, and however far a run came before it was killed."""
    subject, selected = pictures
    method = {**OF_EVERY_FAMILY, "intermediate_budgets": {"method": "kernel_shap", "intermediate_budgets": [3.0]}}.get(
        family
    )
    if family == "spread":
        fine = feature_kinds.build("pixel", subject.dataset.card)
        subject = dataclasses.replace(subject, features=fine, feature_settings="pixel")
        method = {"method": "occlusion", "features": {"kind": "patch", "size": 4}}
    settings = {"method": method, "budget": 4.0 if method["method"] == "kernel_shap" else None, "seed": 0, "repeats": 2}
    chunks = []
    monkeypatch.setattr(rows_module, "FLUSH_SECONDS", 0)
    for name in ("CHUNK_SIZE", "DATA_CHUNK_SIZE"):
        monkeypatch.setattr(sampling, name, 3)

    def run(died_after: int | None = None) -> tuple[pd.DataFrame, StoredRows]:
        with Table(tmp_path, STORED) as table:
            rows = StoredRows(table, score_addresses(subject, selected, 2))
            keep = rows.keep

            def kept(*given):
                if died_after is not None and len(chunks) == died_after:
                    raise KeyboardInterrupt
                chunks.append(len(given[1]))
                keep(*given)

            monkeypatch.setattr(rows, "keep", kept)
            return shortcuts.explain_rows(
                subject, selected, settings, "one", execution.ExecutionBackend("plain", 64), stored=rows
            ), rows

    whole = shortcuts.explain_rows(subject, selected, settings, "one", execution.ExecutionBackend("plain", 64))
    with pytest.raises(KeyboardInterrupt):
        run(died_after=4)
    assert chunks == [3] * 4
    resumed, rows = run()
    budgets = len(whole) // 40
    assert len(rows.found) == 12 * budgets and len(resumed) == len(whole)
    again, rows = run()
    assert len(rows.found) == len(whole)
    order = ["instance", "repeat", "budget"]
    for other in (resumed, again):
        mine, theirs = (frame.sort_values(order, ignore_index=True) for frame in (whole, other))
        assert (
            mine[[*order, "evaluations", "warning"]]
            .astype(object)
            .fillna("")
            .equals(theirs[[*order, "evaluations", "warning"]].astype(object).fillna(""))
        )
        np.testing.assert_allclose(np.stack(mine["scores"]), np.stack(theirs["scores"]), atol=1e-5, rtol=1e-5)
    files = [frame.sort_values(order, ignore_index=True) for frame in (resumed, again)]
    assert files[0]["seconds"].equals(files[1]["seconds"])  # or measurements of them would be computed again


@pytest.mark.parametrize("method", ["expected_gradients", "deep_lift"])
def test_a_custom_background_replaces_the_reference(pictures, method):
    """The rows are those of the reference of that kind; the ends stay the experiment's game."""
    subject, selected = pictures
    share = selected.head(3)

    def rows(subject, **entry):
        settings = {"method": {"method": method, **entry}, "seed": 5}
        return shortcuts.explain_rows(subject, share, settings, "label", execution.ExecutionBackend("plain", 64))

    drawn = dataclasses.replace(
        subject, reference=references.build({"kind": "background", "rows": 9}, subject.dataset, 5)
    )
    own, whole, plain = rows(subject, background=9), rows(drawn), rows(subject)
    assert np.array_equal(np.stack(own["scores"]), np.stack(whole["scores"]))
    assert np.abs(np.stack(own["scores"]) - np.stack(plain["scores"])).max() > 1e-3
    assert (own["evaluations"] == whole["evaluations"]).all() and (own["evaluations"] > plain["evaluations"]).all()
    assert own["value_empty"].equals(plain["value_empty"])


@pytest.mark.parametrize("family", OF_EVERY_FAMILY)
def test_one_three_and_sixteen_shards_give_the_same_scores(pictures, family):
    subject, selected = pictures
    settings = {"method": OF_EVERY_FAMILY[family], "budget": 4.0 if family == "sampled" else None, "seed": 0}

    def rows(count: int) -> pd.DataFrame:
        shares = [select_shard(selected, i, count) for i in range(count)]
        assert min(map(len, shares)) >= 1
        parts = [
            shortcuts.explain_rows(subject, share, settings, family, execution.ExecutionBackend("plain", 64))
            for share in shares
        ]
        return pd.concat(parts, ignore_index=True)

    one = rows(1)
    assert (one["status"] == "ok").all()
    found = np.stack(one["scores"])
    assert np.ptp(found) > 0
    for count in (3, 16):
        split = rows(count)
        pd.testing.assert_frame_equal(
            one[["instance", "evaluations", "warning"]], split[["instance", "evaluations", "warning"]]
        )
        np.testing.assert_allclose(np.stack(split["scores"]), found, atol=1e-5 * np.ptp(found), rtol=1e-5)


def values_in(folder) -> ValueStore:
    return ValueStore(Table(folder, VALUES, growing=True))


def test_stored_values_change_no_number_and_are_counted(tmp_path):
    asked = []
    model = adapters.wrap(lambda rows: asked.append(len(rows)) or 1 / (1 + np.exp(-(rows @ WEIGHTS))))
    columns = Features("column", (D,), np.arange(D, dtype=np.int32))

    def explained(settings, budgets, values):
        arguments = [model, X, np.zeros(len(X), int), settings, columns, Reference(np.zeros((1, D), np.float32))]
        more = {"instances": range(7, 12), "values": values, "addresses": [*"abcde"]}
        return shortcuts.attribute(*arguments, "probability", budgets, **more)

    values = values_in(tmp_path)
    explained({"method": "shapley"}, [None], values)
    for settings, budgets in (({"method": "kernel_shap"}, [2, 4]), ({"method": "occlusion"}, [None])):
        plain = explained(settings, budgets, None)
        asked.clear()
        found = explained(settings, budgets, values)
        assert sum(asked) == 0  # the exact values had them all
        for one, other in zip(plain, found, strict=True):
            assert (one.scores == other.scores).all()
            assert (one.evaluations == other.evaluations).all()
        union = plain[-1].details[0].get("evaluated", D + 2)
        assert [details["reused"] for details in found[-1].details] == [union] * len(X)


def test_seconds_include_those_of_stored_values(tmp_path):
    def slow(rows):
        time.sleep(0.1)
        return 1 / (1 + np.exp(-(rows @ WEIGHTS)))

    columns = Features("column", (D,), np.arange(D, dtype=np.int32))
    arguments = [adapters.wrap(slow), X, np.zeros(len(X), int), {"method": "occlusion"}, columns]
    arguments += [Reference(np.zeros((1, D), np.float32)), "probability"]
    more = {"values": values_in(tmp_path), "addresses": [*"abcde"]}
    made, found = (shortcuts.attribute(*arguments, **more)[0] for _ in range(2))
    assert [details["reused"] for details in found.details] == [D + 2] * len(X)
    assert found.seconds.sum() >= 0.1
    assert made.seconds.sum() >= 0.1


def test_a_nan_among_stored_values_names_the_right_instance(tmp_path):
    model = adapters.wrap(lambda rows: np.where(rows[:, :1] == 9, np.nan, [[0.5, 0.5]]))
    columns, inputs = Features("column", (D,), np.arange(D, dtype=np.int32)), np.zeros((4, D), np.float32)
    arguments = [{"method": "occlusion"}, columns, Reference(np.ones((1, D), np.float32)), "probability"]
    targets, values = np.zeros(4, int), values_in(tmp_path)
    more = {"values": values, "addresses": [*"ab"]}
    shortcuts.attribute(model, inputs[:2], targets[:2], *arguments, instances=[70, 71], **more)
    inputs[3, 0] = 9
    more["addresses"] = [*"abcd"]
    with pytest.raises(ShapelineError, match="instance 73,"):
        shortcuts.attribute(model, inputs, targets, *arguments, instances=[70, 71, 72, 73], **more)


def test_a_model_of_another_vocabulary_is_refused(tmp_path, monkeypatch):
    model = classifier.Classifier("torch", "word_cnn", None, 2, {}, vocabulary_digest="aaaa")
    card = {"vocabulary_digest": "bbbb"}
    monkeypatch.setattr(context.storage, "load", lambda *_: model)
    monkeypatch.setattr(context.loading, "load", lambda *_: SimpleNamespace(card=card))
    with pytest.raises(ShapelineError, match=r"w\.safetensors: it was trained on another vocabulary \(aaaa\)"):
        context.load_context("w.safetensors", "d/arrays.npz", GameSettings("word"), "cpu")


def test_documents_of_unequal_length_come_back_in_the_order_of_the_inputs():
    """A bag of words: the score of a word is its weight, by any method; padding is no feature."""
    weights = np.array([0.0, 1.0, -2.0, 3.0, 0.5])

    def probability(ids):
        return 1 / (1 + np.exp(-weights[np.asarray(ids, int)].sum(1)))

    documents = np.array([[3, 1, 2, 0, 0], [4, 0, 0, 0, 0], [2, 2, 1, 3, 4], [1, 3, 2, 0, 0]])
    for method in ("shapley", "kernel_shap", "l_shapley"):
        found = shapeline.explain(
            probability, documents, method, reference="pad", features="word", value="log_odds", target=1
        )
        assert found.scores.shape == (4, 5)
        for scores, ids in zip(found.scores, documents, strict=True):
            kept = ids != 0
            assert scores[: kept.sum()] == pytest.approx(weights[ids[kept]], abs=1e-5)
            assert np.isnan(scores[kept.sum() :]).all()


def test_a_method_without_a_design_for_one_length_fails_on_those_instances_only():
    features = Features("word", (25,), np.arange(25, dtype=np.int32))
    model = adapters.wrap(lambda ids: np.full((len(ids), 2), 0.5))
    arguments = [model, np.ones((2, 25), np.int32), np.zeros(2, int), {"method": "shapley"}, features]
    (found,) = shortcuts.attribute(*arguments, Reference(np.zeros((1, 25), np.int32)), "probability")
    assert found.status == ["no design"] * 2 and "at most d = 20" in found.error[0]
    with pytest.raises(ShapelineError, match="at most d = 20"):
        shortcuts.attribute(*arguments, Reference(np.zeros((1, 25), np.int32)), "probability", on_error="fail")


def test_an_intermediate_budget_below_the_minimum_fails_alone():
    features = Features("word", (4,), np.arange(4, dtype=np.int32))
    model = adapters.wrap(lambda ids: np.full((len(ids), 2), 0.5))
    arguments = [model, np.ones((2, 4), np.int32), np.zeros(2, int), {"method": "kernel_shap"}, features]
    small, full = shortcuts.attribute(*arguments, Reference(np.zeros((1, 4), np.int32)), "probability", [1, 8])
    assert small.status == ["no design"] * 2 and full.status == ["ok"] * 2


@pytest.mark.parametrize(("method", "each"), [("kernel_shap", 24), ("h_shap", None), ("integrated_gradients", 52)])
def test_progress_counts_the_evaluations(method, each):
    model = adapters.wrap(linear(), "logits", 2)
    told = []
    found = shortcuts.attribute(
        model,
        X,
        np.zeros(5, int),
        {"method": method},
        feature_kinds.build("column", {"kind": "table", "input_shape": [D], "feature_names": list("abcdef")}),
        references.Reference(np.zeros((1, D), np.float32)),
        budgets=[4] if method == "kernel_shap" else [None],
        progress=lambda *numbers: told.append(numbers),
    )[0]
    assert told[-1] == (5, pytest.approx(found.evaluations.sum(), abs=10))
    assert each is None or found.evaluations[0] == each


@pytest.mark.parametrize("method", ["kernel_shap", "sample_shapley", "lime", "expected_gradients", "smooth_grad"])
def test_the_explanation_of_an_input_does_not_depend_on_the_others(method):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    rows = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    rows[4] = rows[1]
    settings = {"method": method, "features": "column", "background": np.zeros((2, 6), np.float32), "target": 1}
    whole = shapeline.explain(model, rows, **settings)
    alone = shapeline.explain(model, rows[3:4], **settings)
    np.testing.assert_allclose(alone.scores[0], whole.scores[3], atol=1e-5 * np.abs(whole.scores).max())
    other = shapeline.explain(model, rows[::-1], **settings)
    np.testing.assert_allclose(other.scores[2], whole.scores[2], atol=1e-5 * np.abs(whole.scores).max())
    if method != "lime":  # of equal rows the second has a draw of its own
        assert np.abs(whole.scores[4] - whole.scores[1]).max() > 1e-4 * np.abs(whole.scores).max()


@pytest.mark.parametrize(
    "method, known", [("kernel_shap", True), ("sample_shapley", True), ("gp_shapley", True), ("lime", False)]
)
def test_scores_have_standard_errors(method, known):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    rows = np.random.default_rng(1).normal(size=(12, 8)).astype(np.float32) * 3
    asked = {"features": "column", "background": np.zeros((1, 8), np.float32), "reference": "zero", "target": 1}
    exact = shapeline.explain(model, rows, "shapley", **asked).scores
    for budget in (8, 24):
        said = shapeline.explain(model, rows, method, budget=budget, **asked)
        if not known:
            assert said.standard_error is None
            return
        error, told = np.sqrt(((said.scores - exact) ** 2).mean()), np.sqrt((said.standard_error**2).mean())
        assert said.standard_error.shape == said.scores.shape and 0.5 < told / error < 2
        assert (np.abs(said.scores - exact) <= 1.96 * said.standard_error + 1e-5).mean() > 0.8
    everything = shapeline.explain(model, rows, method, budget=32, **asked)
    assert everything.standard_error.max() < 1e-5 * np.abs(exact).max()
    np.testing.assert_allclose(everything.scores, exact, atol=1e-5 * np.abs(exact).max())


def test_the_default_method_is_exact_where_all_coalitions_are_few():
    """256 of them or the budget's; else gp_shapley, and kernel_shap where that has too many to read out."""

    def explained(d: int, **spend):
        rows, weights = RNG.normal(size=(2, d)), np.linspace(-1, 1, d)
        return shapeline.explain(
            lambda x: x @ weights, rows, reference="zero", value="prediction", **spend
        ), rows * weights

    for d, spend, method, evaluations in (
        (8, {}, "shapley", 256),
        (9, {}, "gp_shapley", 36),
        (9, {"budget": 60}, "shapley", 512),
        (9, {"evaluations": 40}, "gp_shapley", 40),
        (9, {"evaluations": 512}, "shapley", 512),
        (8, {"evaluations": 20}, "shapley", 256),
        (9, {"budget": {"error": 0.1}}, "gp_shapley", 36),
        (30, {"evaluations": 2**14 + 2}, "kernel_shap", 2**14 + 2),
    ):
        found, exact = explained(d, **spend)
        assert found.about.method["method"] == method and f"by {method}" in repr(found)
        assert found.evaluations.tolist() == [evaluations] * 2, spend
        assert found.scores == pytest.approx(exact, abs=1e-6)


def test_evaluations_are_a_budget_of_another_unit():
    model, given = linear(), {"reference": "zero", "features": "column"}  # of one model there is one backend
    by_count = shapeline.explain(model, X, "kernel_shap", **given, evaluations=24)
    by_budget = shapeline.explain(model, X, "kernel_shap", **given, budget=4)
    assert (by_count.scores == by_budget.scores).all() and by_count.about.method["evaluations"] == 24
    for spend in (
        {"evaluations": 24, "budget": 4},
        {"evaluations": 0},
        {"evaluations": 2.5},
        {"evaluations": {"top": 1}},
    ):
        with pytest.raises(ShapelineError, match=r"explain: (budget and )?evaluations .*; give"):
            shapeline.explain(linear(), X, reference="zero", features="column", **spend)
