"""A text classifier of transformers by its folder: from the configuration's entry to scores, and refusals."""

import copy
import importlib.util
import json

import numpy as np
import pandas as pd
import pytest
import yaml

import shapeline
from shapeline.attribution import context, selection
from shapeline.attribution.context import parse_game as game_of
from shapeline.config import validation
from shapeline.datasets import folders, loading, preparation
from shapeline.errors import ShapelineError
from shapeline.games.execution import ExecutionBackend
from shapeline.models import architectures, storage, torch_models
from shapeline.workflow import job_code
from tests.fixtures import builders, text_files, transformer
from tests.unit import shortcuts

pytest.importorskip("transformers")
PATH = "examples/text_folder/model"
TEXTS = ["A good film isn't bad!", "bad films", "the film endings", "very good", "not a word", "good, goodly film"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, root):
    """A folder with the example's files: a model, its tokenizer, and texts with an opinion each."""
    place = tmp_path_factory.mktemp("place")
    made = transformer.folder(place / PATH)
    table = pd.DataFrame({"text": TEXTS * 5, "opinion": ["positive", "negative"] * 15})
    table.to_csv(place / "examples/text_folder/opinions.csv", index=False)
    return place, yaml.safe_load((root / "examples/text_folder.yaml").read_text()), *made


@pytest.fixture
def example(place, monkeypatch):
    monkeypatch.chdir(place[0])
    return copy.deepcopy(place[1])


@pytest.fixture
def prepared(place, example, tmp_path):
    settings = {key: value for key, value in example["datasets"]["opinions"].items() if key != "source"}
    card = preparation.prepare("text_file", settings, [], tmp_path / "out")
    model = architectures.for_dataset(example["models"]["classifier"], card)
    return card, loading.load(tmp_path / "out"), model, tmp_path


def test_the_example_is_valid_and_its_files_are_inputs(example):
    loaded = validation.load(example)
    assert f"{PATH}/model.safetensors" in job_code.train_code(loaded, "classifier")
    assert f"{PATH}/tokenizer.json" in job_code.prepare_code(loaded, "opinions")
    assert f"{PATH}/model.safetensors" not in job_code.prepare_code(loaded, "opinions")
    assert f"{PATH}/config.json" in job_code.list_user_files(loaded, "masked")
    assert "shapeline/models/transformer_models.py" in " ".join(job_code.train_code(loaded, "classifier"))


def test_the_example_of_a_bert_on_news_is_valid(root, tmp_path, monkeypatch):
    """With any folder of a BERT; without its weights it is refused."""
    own = yaml.safe_load((root / "examples/bert_folder.yaml").read_text())
    monkeypatch.setenv("SHAPELINE_DATA", str(tmp_path))
    monkeypatch.setenv("SHAPELINE_MODELS", str(tmp_path))
    text_files.write_folder(tmp_path / "ag_news", {"test.csv": text_files.agnews(8)})
    transformer.folder(tmp_path / "bert", labels=("World", "Sports", "Business", "Sci/Tech"))
    loaded = validation.load(own)
    removals = {name: loaded.experiments[name].reference for name in loaded.run}
    assert removals == {"bert_deleted": "delete", "bert_masked": "mask"}
    (tmp_path / "bert/model.safetensors").unlink()
    with pytest.raises(ShapelineError, match=r"models.ag_bert.source: .*/bert"):
        validation.load(own)


def test_a_model_of_a_folder_gives_the_outputs_of_transformers_and_outlives_its_folder(prepared, place):
    card, data, model, tmp_path = prepared
    assert card["input_shape"] == [24] and card["mask_id"] == 4 and card["absent_id"] == 0
    assert model.task == "classification" and model.n_classes == 2
    storage.save(model, tmp_path / "weights.safetensors")
    again = storage.load(tmp_path / "weights.safetensors")
    _, _, own, cut = place
    made = cut(TEXTS * 5, padding=True, return_tensors="pt")
    expected = own(**made).logits.detach().double().log_softmax(1).numpy()[data.ids]
    for each in (model, again):
        np.testing.assert_allclose(each.log_probs(data.inputs), expected, atol=1e-5)
    measured = architectures.measure_card(again, data)
    assert 0 <= measured["test_accuracy"] <= 1 and "transformers" in measured["versions"]


@pytest.mark.parametrize("removal", ["delete", "mask", "pad"])
def test_the_workflow_gives_the_scores_that_a_call_gives(prepared, place, removal):
    _, _, model, tmp_path = prepared
    storage.save(model, tmp_path / "weights.safetensors")
    settings = {"features": {"kind": "word"}, "reference": removal, "seed": 0}
    subject = context.load_context(
        str(tmp_path / "weights.safetensors"), str(tmp_path / "out/arrays.npz"), game_of(settings), "cpu"
    )
    form = context.calibrate(subject)
    assert (form.name, form.batch) == ("plain", 1024) and form.rate > 0  # more rows to sort by length than a pass has
    chosen = selection.select(subject, 0, 4)
    assert all("isn't" in words for words, text in zip(chosen["words"], chosen["text"], strict=True) if "isn't" in text)
    asked = {"method": {"method": "shapley"}, "seed": 0, "value": "log_probability", "budget": 4.0}
    found = shortcuts.explain_rows(subject, chosen, asked, "one", ExecutionBackend())
    _, _, own, cut = place
    said = shapeline.explain(own, list(chosen["text"]), "shapley", removal, tokenizer=cut)
    for row, (scores, words) in enumerate(zip(found["scores"], chosen["words"], strict=True)):
        np.testing.assert_allclose(scores, said.scores[row][: len(words)], atol=1e-5)
        assert tuple(words) == said.feature_names[row]


def test_blocks_are_randomised_from_the_last_one(prepared):
    _, data, model, tmp_path = prepared
    storage.save(model, tmp_path / "weights.safetensors")
    blocks = ["model.bert.embeddings", "model.bert.encoder.layer.0", "model.bert.pooler.dense", "model.classifier"]
    before = {name: array.copy() for name, array in torch_models.state(model.module).items()}
    assert list(architectures.list_layers(model)) == blocks
    for count, drawn in ((1, blocks[3:]), (3, blocks[:0:-1]), (None, blocks[::-1])):
        again = storage.load(tmp_path / "weights.safetensors")
        assert architectures.randomise(again, count, 7) == drawn
        after = torch_models.state(again.module)
        changed = {name for name in before if not np.array_equal(before[name], after[name])}
        assert changed and all(any(name.startswith(block) for block in drawn) for name in changed)
        assert all(any(name.startswith(block) for name in changed) for block in drawn)
        storage.save(again, tmp_path / "drawn.safetensors")
        loaded = storage.load(tmp_path / "drawn.safetensors")
        np.testing.assert_array_equal(loaded.log_probs(data.inputs), again.log_probs(data.inputs))


def test_outputs_are_of_the_classes_by_name(place, prepared, tmp_path):
    card, data, model, _ = prepared
    settings = {"source": f"{tmp_path}/model"}

    def named(labels):
        made = transformer.folder(tmp_path / "model", labels=labels)[0]
        (tmp_path / "model/config.json").write_text(made.config.to_json_string(use_diff=False))
        return architectures.for_dataset(settings, card).log_probs(data.inputs)

    usual = model.log_probs(data.inputs)  # negative, positive
    np.testing.assert_array_equal(named(("LABEL_0", "LABEL_1")), usual)
    np.testing.assert_array_equal(named(("Positive", "Negative")), usual[:, ::-1])
    with pytest.raises(ShapelineError, match=r"has the classes no, yes and the dataset has negative, positive"):
        named(("no", "yes"))
    with pytest.raises(ShapelineError, match="must be the same: set the dataset's trim: true"):
        architectures.for_dataset({"source": str(place[0] / PATH)}, {**card, "classes": [" negative", " positive"]})


def test_what_is_short_or_unknown_is_refused(prepared, place, tmp_path):
    card, _, _, _ = prepared
    source = {"source": str(place[0] / PATH)}
    for change, said in (
        ({"input_shape": [40]}, "takes 24 tokens and the documents of 'out' have 40; set the dataset's length: 24"),
        ({"vocabulary": ["x"] * 99}, "knows 22 tokens and the tokenizer of 'out' has 99"),
    ):
        with pytest.raises(ShapelineError, match=said):
            architectures.for_dataset(source, {**card, **change})
    del (plain := dict(card))["mask_id"]
    with pytest.raises(ShapelineError, match=r"set datasets.out.tokenizer"):
        architectures.for_dataset(source, plain)
    transformer.folder(tmp_path / "model", problem_type="multi_label_classification")
    with pytest.raises(ShapelineError, match="gives several labels per text"):
        architectures.for_dataset({"source": f"{tmp_path}/model"}, card)
    weights = tmp_path / "model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])  # a download that broke off
    with pytest.raises(ShapelineError, match="cannot be read by transformers"):
        architectures.for_dataset({"source": f"{tmp_path}/model"}, card)
    transformer.folder(tmp_path / "model", problem_type="multi_label_classification")
    whole = tmp_path / "model/config.json"
    whole.write_text(json.dumps(json.loads(whole.read_text()) | {"num_hidden_layers": 2, "problem_type": None}))
    with pytest.raises(ShapelineError, match=r"lack 16 that the model has, first 'bert.encoder.layer.1"):
        architectures.for_dataset({"source": f"{tmp_path}/model"}, card)


def edited(folder, name, **changes):
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.rename(path.parent / "gone"), "text_folder/model: there is no such folder"),
        (lambda path: (path / "config.json").unlink(), "has no config.json"),
        (lambda path: (path / "MLmodel").write_text("flavors:"), "holds a model of MLflow; load it in a function"),
        (lambda path: (path / "config.json").write_text("{"), "config.json: is not readable as JSON"),
        (lambda path: edited(path, "config.json", auto_map={"AutoModel": "own.py"}), "requires code of its own"),
        (lambda path: edited(path, "tokenizer_config.json", auto_map={}), "requires code .* tokenizer_config.json"),
        (lambda path: edited(path, "config.json", architectures=["BertModel"]), "holds BertModel, which is no text cl"),
        (lambda path: (path / "model.safetensors").rename(path / "pytorch_model.bin"), "only pickled weights"),
        (lambda path: (path / "adapter_config.json").write_text("{}"), "holds an adapter; merge it"),
        (lambda path: (path / "tokenizer.json").unlink(), "has no tokenizer: there is no tokenizer.json"),
        (lambda path: (path / "tokenizer.json").rename(path / "vocab.txt"), r"only a slow tokenizer \(vocab.txt\)"),
    ],
)
def test_a_folder_that_cannot_be_read_is_one_line_before_any_job(example, tmp_path, monkeypatch, change, said):
    monkeypatch.chdir(tmp_path)
    transformer.folder(tmp_path / PATH)
    (tmp_path / "examples/text_folder/opinions.csv").write_text("text,opinion\n")
    validation.load(example)
    change(tmp_path / PATH)
    with pytest.raises(ShapelineError, match=said):
        validation.load(example)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("datasets.opinions.tokenizer", None, "set datasets.opinions.tokenizer: examples/text_folder/model"),
        ("datasets.opinions.tokenizer", "bert", "write path/to/file.py:function, path/to/folder of a tokenizer"),
        ("models.classifier.source", "bert", "or path/to/folder of transformers"),
        ("models.classifier.training", {"epochs": 2}, "is ready and not made here; remove the key"),
        (
            "experiments.masked.methods.deep",
            {"method": "deep_lift"},
            "deep_lift has no rule for what a transformer does",
        ),
        (
            "experiments.deleted.methods.path",
            {"method": "integrated_gradients"},
            "integrated_gradients goes from the reference to the input, .* use mask or pad",
        ),
    ],
)
def test_incompatible_settings_are_one_line(example, path, value, said):
    builders.put(example, path, value)
    with pytest.raises(ShapelineError, match=said):
        validation.load(example)


def test_a_tokenizer_without_a_mask_and_another_tokenizer_are_refused(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    transformer.folder(tmp_path / PATH, mask=False)
    (tmp_path / "examples/text_folder/opinions.csv").write_text("text,opinion\n")
    with pytest.raises(
        ShapelineError, match=r"masked.reference: the tokenizer .* has no mask token; use delete or pad"
    ):
        validation.load(example)
    transformer.folder(tmp_path / "other/model")
    example["datasets"]["opinions"]["tokenizer"] = "other/model"
    with pytest.raises(ShapelineError, match=r"it takes texts that its own tokenizer cuts; set datasets.opinions"):
        validation.load(example)


def test_without_transformers_the_installation_is_named(example, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "transformers" else find(name, *more)
    )
    with pytest.raises(ShapelineError, match=r"pip install 'shapeline\[text\]'"):
        validation.load(example)
    with pytest.raises(ShapelineError, match="not installed"):
        folders.transformers()


def test_which_paths_are_folders():
    for path in ("models/bert", "./bert", "../bert/", "/tmp/a.b/bert", "$HOME/bert-v1.0", "a/bert-2.1-uncased"):
        assert folders.names_folder(path)
    for path in ("bert", "a/model.onnx", "a/own.py:make", "mlp", "a/pipeline.skops", None, "http://x/y"):
        assert not folders.names_folder(path)
