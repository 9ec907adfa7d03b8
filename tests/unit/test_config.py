"""Every mistake in a configuration is one line with its place, the problem and the nearest valid choice."""

import copy
import inspect
import json

import pytest
import yaml

from shapeline.config import derived, mistakes, validation
from shapeline.datasets import sources
from shapeline.designs import surrogate
from shapeline.errors import ShapelineError
from shapeline.methods import registry
from shapeline.metrics import registry as metrics_registry
from tests.unit.shortcuts import build


def lines(raw: dict) -> list[str]:
    with pytest.raises(ShapelineError) as failure:
        validation.load(raw)
    return str(failure.value).splitlines()


def set_at(raw: dict, path: str, value: object) -> dict:
    *parents, last = path.split(".")
    node = raw
    for part in parents:
        node = node.setdefault(part, {})
    node[last] = value
    return raw


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("sead", 1, ["sead: unknown key", "'seed'"]),
        ("training_seeds", 3, ["training_seeds: unknown key. 'training_seeds' belongs under experiments.<name>."]),
        ("margin", 0.1, ["margin: unknown key. 'margin' belongs under experiments.<name>.report."]),
        ("experiments.digits.versions", "tell", ["versions: unknown key. 'versions' belongs at the top."]),
        ("run", ["digit"], ["run: there is no experiment 'digit'", "'digits'"]),
        ("datasets", None, ["datasets: the section is empty"]),
        ("datasets.digits38.clases", [3, 8], ["datasets.digits38.clases: unknown key", "'classes'"]),
        ("datasets.digits38.source", "digit", ["unknown source 'digit'", "'digits'"]),
        (
            "datasets.digits38.source",
            "own_x.py:f",
            ["datasets.digits38.source: there is no file own_x.py; paths start at the folder of the "],
        ),
        ("datasets.digits38.source", "$NOT_SET/own_x.py:f", ["datasets.digits38.source: path", "NOT_SET is not set"]),
        ("datasets.digits38.classes", [3, 18], ["datasets.digits38", "18"]),
        ("datasets.digits38.classes", [3], ["datasets.digits38.classes"]),
        (
            "models.digits_cnn.dataset",
            "digits",
            ["models.digits_cnn.dataset: there is no dataset 'digits'", "'digits38'"],
        ),
        ("models.digits_cnn.architecture", "digit_cnn", ["unknown value 'digit_cnn'", "'digits_cnn'"]),
        ("models.cancer_mlp.sizes", {"hiden": [3]}, ["cancer_mlp.sizes.hiden: mlp has no size 'hiden'.", "'hidden'"]),
        ("models.cancer_mlp.sizes", {"hidden": 3}, ["cancer_mlp.sizes.hidden: mlp takes a list", "write [3]"]),
        ("models.crosses_cnn.sizes", {"hight": 3}, ["crosses_cnn.sizes.hight: crosses_cnn has no size", "'height'"]),
        ("models.crosses_cnn.sizes", {"height": 3}, ["crosses_cnn needs a height of at least 20, not 3"]),
        (
            "models.cancer_mlp.sizes",
            {"classes": 7},
            ["cancer_mlp.sizes.classes: it is 7", "breast_cancer has 2; remove"],
        ),
        (
            "models.digits_cnn.training.learning_rate",
            "1e-3",
            ["learning_rate", "text to YAML; write 1.0e-3, with a point and a sign"],
        ),
        ("models.digits_cnn.training.epochs", -1, ["epochs", "greater than or equal to 0"]),
        (
            "models.digits_cnn",
            {"dataset": "digits38", "architecture": "resnet18", "weights": "imagenet", "training": {"epochs": 0}},
            ["digits_cnn.training.epochs: with 0 the last layer stays random"],
        ),
        ("models.digits_cnn.training.epochs", 0, ["epochs: with 0 nothing is trained and digits_cnn is untrained"]),
        ("models.digits_cnn.architecture", "mlp", ["models.digits_cnn.architecture: mlp does not take", "image"]),
        (
            "models.digits_cnn",
            {"dataset": "digits38", "source": "own_y.py:f"},
            ["models.digits_cnn.source: there is no file own_y.py; paths start at the folder of the "],
        ),
        ("experiments.digits.budget", float("inf"), ["experiments.digits.budget", "finite number"]),
        ("experiments.digits.methods", {"exact": {"method": "shapley"}}, ["'exact' is the only method"]),
        ("experiments.digits.model", "cnn", ["experiments.digits.model: there is no model 'cnn'"]),
        ("experiments.digits.budget", "4", ["experiments.digits.budget", "write 4 without quotes"]),
        ("experiments.digits.methods", None, ["experiments.digits.methods: the section is empty"]),
        ("experiments.digits.methods.k", {"method": "kernel_shp"}, ["methods.k: unknown method", "'kernel_shap'"]),
        ("experiments.digits.methods.k", {"budget": 4}, ["methods.k: the key 'method' is missing"]),
        ("seed", "08", ["seed: '08' is text to YAML; write 8 without quotes (within --config"]),
        ("run", [False], ["run.0: False is a bare no, off or false to YAML; write it in quotes"]),
        (
            "datasets",
            {"t": {"source": "table_file", "path": "t.csv", "target": "y", "classes": ["a", False]}},
            ["datasets.t.classes.1: False is a bare no, off or false to YAML; write it in quotes"],
        ),
        ("experiments.digits.methods.k", "lime", ["methods.k: 'lime' is not a mapping of keys; write {method: lime}"]),
        (
            "experiments.digits.methods.k",
            {"method": "kernel_shap", "buget": 4},
            ["methods.k.buget: unknown key", "'budget'"],
        ),
        (
            "experiments.digits.methods.k",
            {"method": "kernel_shap", "budget": 0.5},
            ["needs at least 32", "set 2 or more"],
        ),
        ("experiments.digits.budget", 0.25, ["experiments.digits.budget", "needs at least"]),
        (
            "experiments.digits.methods.k",
            {"method": "lime", "intermediate_budgets": [4.0]},
            ["4 is not below the budget of 4"],
        ),
        (
            "experiments.digits.methods.k",
            {"method": "kernel_shap", "intermediate_budgets": [1]},
            ["intermediate_budgets: 1 x d is 16", "32"],
        ),
        (
            "experiments.digits.methods.k",
            {"method": "occlusion", "intermediate_budgets": [1]},
            ["intermediate_budgets: unknown key"],
        ),
        (
            "experiments.digits.methods.k",
            {"method": "lime", "match_budget_of": "c_shaply"},
            ["'c_shaply'", "'c_shapley'"],
        ),
        (
            "experiments.digits.methods.k",
            {"method": "lime", "match_budget_of": "lime"},
            ["no fixed number of evaluations"],
        ),
        (
            "experiments.digits.methods.k",
            {"method": "lime", "match_budget_of": "exact", "budget": 4},
            ["remove budget"],
        ),
        ("experiments.digits.features", {"kind": "pixel"}, ["shapley enumerates 2^d", "d = 64 is above 20"]),
        ("experiments.digits.methods.k", {"method": "sample_interactions"}, ["at least 242", "set 15.13 or more"]),
        (
            "experiments.crosses.methods.k",
            {"method": "sample_interactions", "budget": 300, "features": {"kind": "patch", "size": 10}},
            ["methods.k.features: sample_interactions scores pairs of the experiment's features; remove the key"],
        ),
        ("experiments.crosses.methods.k", {"method": "sample_interactions"}, ["scores all pairs and d =", "above 256"]),
        (
            "experiments.crosses.methods.k",
            {"method": "shapley_interactions"},
            ["shapley_interactions enumerates 2^d", "above 16"],
        ),
        (
            "experiments.digits.features",
            {"kind": "column"},
            ["features.kind: 'column' does not fit a dataset of kind image"],
        ),
        (
            "experiments.digits.features",
            {"kind": "patch", "size": 9},
            ["experiments.digits.features", "larger than the image"],
        ),
        ("experiments.digits.features", {"kind": "patch", "size": 8}, ["d = 1"]),
        ("experiments.digits.reference", "meen", ["unknown value 'meen'", "'mean'"]),
        ("experiments.digits.reference", {"kind": "backgroud"}, ["unknown kind 'backgroud'", "'background'"]),
        ("experiments.digits.reference", {"kind": "blur", "sigma": 0}, ["reference.sigma", "greater than 0"]),
        (
            "experiments.digits.reference",
            {"kind": "array", "path": "no.npy"},
            ["reference.path: there is no file no.npy"],
        ),
        ("experiments.digits.reference", {"kind": "background", "row": 3}, ["reference.row: unknown key", "'rows'"]),
        (
            "experiments.digits.reference",
            {"kind": "array", "path": "$NOT_SET/a.npy"},
            ["digits.reference.path", "NOT_SET"],
        ),
        (
            "experiments.digits.reference",
            {"kind": "conditional"},
            ["'conditional' does not fit a dataset of kind image"],
        ),
        ("experiments.digits.reference", "pad", ["'pad' does not fit a dataset of kind image"]),
        ("experiments.digits.features", {"kind": "word"}, ["Allowed: pixel, patch, superpixel"]),
        ("experiments.digits.features", {"kind": "superpixel", "segment": 9}, ["unknown key", "'segments'"]),
        ("experiments.digits.features", {"kind": "superpixel", "segments": 900}, ["more than the image's 64 pixels"]),
        (
            "experiments.digits.methods.m",
            {"method": "lime", "kernel": "shapley", "n_features": 3},
            ["methods.m.n_features", "cosine"],
        ),
        (
            "experiments.cancer.reference",
            "blur",
            ["experiments.cancer.reference: 'blur' does not fit a dataset of kind table"],
        ),
        ("experiments.digits.metrics.eror", {}, ["metrics.eror: unknown key", "'error'"]),
        ("experiments.digits.metrics.error", {"reference": "exakt"}, ["there is no method 'exakt'", "'exact'"]),
        ("experiments.digits.shards", "many", ["unknown value 'many'. Allowed: auto. Or write a whole number."]),
        (
            "experiments.digits.instances",
            {"count": 10**11},
            ["digits.shards: 400,000,000 score files per method", "fewer"],
        ),
        ("experiments.reviews.precision", "bfloat16", ["experiments.reviews.precision: it is for models of torch"]),
        ("experiments.cancer_influence.compile", True, ["cancer_influence.compile: it is for models of torch"]),
        ("experiments.digits.precision", "float16", ["digits.precision: unknown value 'float16'", "bfloat16"]),
        ("jobs_per_gpu", 0, ["jobs_per_gpu", "greater than or equal to 1"]),
        ("experiments.cancer.methods.l", {"method": "l_shapley"}, ["needs features on a graph", "graph: chain"]),
        ("experiments.cancer.methods.r", {"method": "c_shapley_regression"}, ["needs features on a graph"]),
        ("device", "gpu", ["device: unknown value 'gpu'", "cpu"]),
        ("experiments.cancer.reference", "background", ["'background' is not a mapping", "write {kind: background}"]),
        ("experiments.cancer.instances", 20, ["20 is not a mapping of keys; write {count: 20}"]),
        ("experiments.cancer.metrics", ["error"], ["a mapping of keys; write error: {...} without a hyphen, one per"]),
        ("experiments.cancer.features", "column", ["'column' is not a mapping of keys; write {kind: column}"]),
        (
            "experiments.cancer.features",
            {"kind": "group", "groups": {"size": ["mean radius", "mean area"]}},
            ["cancer.features: features groups: 28 column(s) in no group", "list each column once"],
        ),
        (
            "experiments.cancer.features",
            {"kind": "group", "groups": {"size": ["mean radios"], "rest": ["mean area"]}},
            ["cancer.features: features group 'size': no column 'mean radios'. Did you mean 'mean radius'?"],
        ),
        ("experiments.digits.methods.k", {"method": "mine:f"}, ["unknown method 'mine:f'; write path/to/file.py:func"]),
        ("experiments.digits.instances.label", 11, ["digits.instances.label", "11 is not one of them"]),
        ("data.mirror", "${NOT_SET}/m", ["data.mirror: path '${NOT_SET}/m'", "NOT_SET is not set"]),
        ("data.offline", "yes", ["data.offline", "give true or false"]),
    ],
)
def test_a_mistake_is_one_clear_line(default, path, value, words):
    found = lines(set_at(default, path, value))
    assert any(all(word in line for word in words) for line in found), found


def test_a_mistaken_key_of_an_entry_causes_no_other_mistake(default):
    entry = {"method": "kernel_shap", "budget": "8", "intermediate_budgets": [6]}  # not below the default of 4
    found = lines(set_at(default, "experiments.digits.methods.k", entry))
    assert len(found) == 1 and "k.budget: '8' is text to YAML" in found[0]


def test_a_function_that_builds_or_reads_is_found_before_any_job(default, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from elsewhere import imported\nalias = print\n\n\nclass Net:\n    pass\n\n\ndef build():\n    pass\n"
    )
    for name in ("imported", "alias", "Net", "build"):
        validation.load(set_at(default, "models.digits_cnn", {"dataset": "digits38", "source": f"{file}:{name}"}))
    found = lines(set_at(default, "models.digits_cnn", {"dataset": "digits38", "source": f"{file}:biuld"}))
    assert f"models.digits_cnn.source: {file}: has no function 'biuld'. Did you mean 'build'?" in found
    found = lines(set_at(default, "datasets.digits38", {"source": f"{file}:reed"}))
    assert any(line.startswith(f"datasets.digits38.source: {file}: has no function 'reed'. Allowed:") for line in found)


def test_results_are_no_file_and_their_shards_are_bounded_before_they_are_counted_out(default, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Makefile").touch()
    for results in ("Makefile", "Makefile/deep"):
        assert lines({**default, "results": results}) == ["results: Makefile is a file; give the name of a folder"]
    default["experiments"]["digits"] |= {"instances": {"count": 10**11}, "shards": 10_000}
    validation.load(default)


@pytest.mark.parametrize("name", ["scores", "attribute", "smoke", "reports", "a b", "9lives"])
def test_names_that_are_taken_or_malformed(default, name):
    default["experiments"][name] = copy.deepcopy(default["experiments"]["digits"])
    assert any(line.startswith(f"experiments.{name}:") for line in lines(default))


def test_all_mistakes_are_reported_together(default):
    set_at(default, "sead", 1)
    set_at(default, "models.digits_cnn.architecture", "nope")
    set_at(default, "experiments.digits.methods.k", {"method": "kernel_shp"})
    set_at(default, "experiments.cancer.metrics.error.reference", "exakt")
    found = lines(default)
    assert len(found) == 4, found


def test_an_empty_file_names_every_missing_section():
    assert lines({}) == [f"{key}: is missing; add it" for key in ("run", "datasets", "models", "experiments")]


def test_null_removes_an_entry_of_an_earlier_file(default):
    default["experiments"]["digits"]["methods"]["random"] = None
    default["experiments"]["cancer"] = None
    default["run"] = ["digits"]
    loaded = validation.load(default)
    assert "random" not in loaded.experiments["digits"].methods
    assert "cancer" not in loaded.experiments


def test_smoke_is_always_defined_and_smoke_scale_has_its_own_folder(default):
    assert "smoke" in validation.load(default).experiments
    small = validation.load({**default, "scale": "smoke"})
    assert small.results == "results/smoke"
    assert small.experiments["digits"].instances.count == 16
    assert small.models["digits_cnn"].training.epochs == 2


def test_paper_scale_is_the_default_and_changes_nothing(default):
    assert validation.load({**default, "scale": "paper"}) == validation.load(default)
    assert "scale: unknown value 'full'" in " ".join(lines({**default, "scale": "full"}))


def test_smoke_scale_reduces_expensive_settings(default):
    default["datasets"]["c"] = {"source": "crosses"}
    default["models"]["c"] = {"dataset": "c", "architecture": "crosses_cnn"}
    default["experiments"]["c"] = {
        "model": "c",
        "features": {"kind": "pixel"},
        "shards": 4,
        "repeats": 5,
        "instances": {"count": 300, "label": "cross", "correct": True, "objects": 1},
        "methods": {
            "p": {"method": "partition"},
            "few": {"method": "partition", "evaluations": 16},
            "e": {"method": "expected_gradients"},
        },
        "metrics": {"ablation": {}, "localization": {}},
    }
    small = validation.load({**default, "scale": "smoke"})
    chosen = small.experiments["c"]
    assert small.datasets["c"].count == 400
    assert derived.canonical(chosen.instances) == {"count": 16, "label": "cross", "objects": 1, "fewer_ok": True}
    assert (chosen.shards, chosen.repeats, chosen.metrics.ablation.sizes) == (None, 2, 20)
    spent = [getattr(entry, "evaluations", None) or entry.samples for entry in chosen.methods.values()]
    assert spent == [64, 16, 10]


def test_extended_scale_has_more_instances_and_repeats(default):
    default["experiments"]["reviews"]["instances"] = {"texts": ["a warm film"]}
    del default["experiments"]["reviews"]["metrics"]["ground_truth_words"]
    large = validation.load({**default, "scale": "beyond"})
    assert large.results == "results/beyond"
    assert derived.canonical(large.experiments["digits"].instances) == {"count": 321, "fewer_ok": True}
    assert [large.experiments[name].repeats for name in ("digits", "crosses")] == [3, 3]
    default["experiments"]["digits"]["repeats"] = 5
    assert validation.load({**default, "scale": "beyond"}).experiments["digits"].repeats == 5
    assert large.experiments["reviews"].instances.texts == ["a warm film"]
    assert large.models == validation.load(default).models


def test_occlusion_is_counted_and_too_many_pixels_are_refused(default, root, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setattr("shapeline.methods.settings.MethodSettings.build", None)  # its masks are not made to be counted
    assert derived.count_fixed_cost('{"method": "occlusion"}', (100, 120)) == 12_001
    default["datasets"]["large"] = {"source": "image_folder", "path": "docs/images", "size": [240, 320]}
    default["models"]["large"] = {"dataset": "large", "architecture": "resnet18"}
    default["experiments"]["large"] = {
        **{"model": "large", "features": {"kind": "pixel"}, "metrics": {"cost": {}}},
        "methods": {"left_out": {"method": "occlusion"}},
    }
    default["run"] = ["large"]
    told = "experiments.large.methods.left_out: occlusion: 76,801 coalitions of 76,800 features do not fit"
    assert [line for line in lines(default) if told in line]


@pytest.mark.parametrize("shape", [(9,), (4, 4), (2, 5)])
@pytest.mark.parametrize("more", [{"order": 1}, {"order": 3}, {"order": 3, "constrained": True}, {"order": 9}])
def test_runs_and_squares_are_counted_as_they_are_built(shape, more):
    entry = {"method": "c_shapley_regression", **more}
    assert derived.count_fixed_cost(json.dumps(entry), shape) == build(entry, shape).evaluations


def test_unset_variable_and_missing_local_path(default, monkeypatch):
    monkeypatch.delenv("SHAPELINE_NOWHERE", raising=False)
    default["datasets"]["m"] = {"source": "mnist", "path": "${SHAPELINE_NOWHERE}/mnist"}
    assert any("SHAPELINE_NOWHERE is not set" in line for line in lines(default))
    monkeypatch.setenv("SHAPELINE_NOWHERE", "/nowhere")
    assert any("there is nothing at /nowhere/mnist" in line for line in lines(default))


def test_canonical_settings_ignore_order_numbers_written_two_ways_and_defaults(default):
    def settings(entry: dict) -> dict:
        default["experiments"]["digits"]["methods"] = {"k": entry}
        default["experiments"]["digits"] |= {"metrics": {}, "training_seeds": 1}
        return derived.canonical(validation.load(default).experiments["digits"].methods["k"])

    first = settings({"method": "lime", "budget": 4, "kernel": "cosine"})
    second = settings({"kernel_width": 0.25, "budget": 4.0, "method": "lime"})
    assert repr(first) == repr(second) == "{'budget': 4.0, 'method': 'lime'}"


def test_a_rival_spends_what_a_fixed_cost_method_spends(default):
    default["experiments"]["digits"]["methods"]["rival"] = {"method": "sample_shapley", "match_budget_of": "occlusion"}
    loaded = validation.load(default)
    assert derived.find_budget(loaded, "digits", "rival") * 16 == pytest.approx(17)
    assert derived.find_budget(loaded, "digits", "kernel_shap") == 4


def test_schema_is_in_step(root):
    stored = json.loads((root / "workflow/schemas/config.schema.json").read_text())
    assert stored == validation.build_schema(), (
        "run: python -m tools.configuration_reference --schema > workflow/schemas/config.schema.json"
    )


def test_names_of_the_paper_configuration_are_disjoint(root, default):
    paper = yaml.safe_load((root / "config.paper.yaml").read_text())
    for section in mistakes.SECTIONS:
        assert not set(paper[section]) & set(default[section])
    validation.load(
        {**default, **{key: {**default.get(key, {}), **paper[key]} for key in mistakes.SECTIONS}, "run": paper["run"]}
    )


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("name", sorted(name for name, method in registry.METHODS.items() if not method.measure))
def test_typed_defaults_are_those_of_the_function(name, framework):
    """Jobs are given only what differs from the default, so the function's own default must be the typed one."""
    if lacking := registry.find_missing_package(name):
        pytest.skip(lacking)
    method = registry.METHODS[name]
    signature = {**inspect.signature(sources.resolve(method.function_for(framework)).function).parameters}
    if name == "lime":
        signature |= inspect.signature(surrogate.sparsify).parameters
    for key, field in method.parameters.model_fields.items():
        if key not in (
            "method",
            "budget",
            "intermediate_budgets",
            "match_budget_of",
            "graph",
            "n_features",
            "features",
            "background",
        ):
            required = field.is_required() and signature[key].default is inspect.Parameter.empty
            assert required or signature[key].default == field.default, (name, key)


@pytest.mark.parametrize("name", sorted(metrics_registry.METRICS))
def test_typed_defaults_of_metrics_are_those_of_the_function(name):
    metric = metrics_registry.METRICS[name]
    signature = inspect.signature(sources.resolve(metric.function).function).parameters
    for key, field in metric.parameters.model_fields.items():
        if key not in ("reference", "layers"):  # which name files
            required = field.is_required() and signature[key].default is inspect.Parameter.empty
            assert required or signature[key].default == field.default, (name, key)


def test_a_framework_that_is_not_installed_is_refused_before_any_job(default, monkeypatch):
    """As TensorFlow is on a Python that it has no release for; only where the run needs it."""
    from shapeline.config import entry_checks

    config = validation.load(default)
    validation.check_frameworks(config, config.run)
    monkeypatch.setattr(entry_checks, "is_installed", lambda package: package != "tensorflow")
    with pytest.raises(ShapelineError) as failure:
        validation.check_frameworks(config, config.run)
    assert str(failure.value) == (
        "run: tensorflow is not installed; pip install 'shapeline[tensorflow]', set framework: torch of the model, "
        "or remove what needs it: reviews, reviews_sentence"
    )
    validation.check_frameworks(config, ["smoke", "digits", None])
