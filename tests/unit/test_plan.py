"""The plan of the Snakefile: paths from counts, settings of one method, tracked files, lost records."""

import ast
import dataclasses
import json
import os
import random
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from shapeline import scores
from shapeline.attribution.context import parse
from shapeline.config import validation
from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.seeds import digest
from shapeline.workflow import job_code, jobs, messages, runs


def shuffled(value):
    if isinstance(value, dict):
        keys = list(value)
        random.Random(1).shuffle(keys)
        return {key: shuffled(value[key]) for key in reversed(keys)}
    return value


def every_setting(loaded) -> dict:
    return {path: repr(settings) for path, settings in jobs.list_expected_outputs(loaded)}


def test_settings_do_not_depend_on_the_order_of_keys(default):
    assert every_setting(validation.load(default)) == every_setting(validation.load(shuffled(default)))


def test_a_new_method_changes_no_other_settings(default):
    before = every_setting(validation.load(default))
    default["experiments"]["digits"]["methods"]["more"] = {"method": "kernel_shap", "budget": 8}
    after = every_setting(validation.load(default))
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {"results/reports/digits.ipynb"}
    assert {path for path in set(after) - set(before)} >= {"results/digits/scores/more/0-of-1.parquet"}


def test_the_budget_belongs_to_sampled_methods_only(default):
    before = every_setting(validation.load(default))
    default["experiments"]["digits"]["budget"] = 8
    after = every_setting(validation.load(default))
    changed = {path for path in before if before[path] != after[path] and "/digits/scores/" in path}
    changed = {path.split("/")[3].partition("@")[0] for path in changed}
    assert changed == {"gp_shapley", "kernel_shap", "sample_shapley", "lime"}


def test_shards_come_from_counts(default):
    default["experiments"]["digits"]["instances"]["count"] = 501
    loaded = validation.load(default)
    assert runs.shards(loaded, "digits") == 3
    assert runs.list_score_files(loaded, "digits", "exact")[2] == "results/digits/scores/exact/2-of-3.parquet"
    default["experiments"]["digits"]["shards"] = 4
    assert runs.shards(validation.load(default), "digits") == 4


def test_shards_of_an_experiment_do_not_change_others(default):
    before = every_setting(validation.load(default))
    default["experiments"]["digits"]["shards"] = 3
    after = every_setting(validation.load(default))
    changed = set(before.items()) ^ set(after.items())
    assert changed
    assert {path.rpartition("/")[0].split("scores/")[0] for path, _ in changed} == {"results/digits/"}
    assert all(before[path] == after[path] for path in before.keys() & after.keys())


def test_the_digest_of_an_experiment_changes_only_with_its_settings(default):
    before = jobs.compute_digests(validation.load(default))
    assert list(before) == default["run"]
    assert (
        jobs.compute_digests(validation.load({**shuffled(default), "run": default["run"], "device": "cpu"})) == before
    )
    default["experiments"]["digits"]["shards"] = 3
    assert jobs.compute_digests(validation.load(default)) == before
    for section, key, value in (("metrics", "error", {"reference": "exact", "top": 0.5}), ("report", "title", "other")):
        default["experiments"]["digits"].setdefault(section, {})[key] = value
        after = jobs.compute_digests(validation.load(default))
        assert {name for name in before if before[name] != after[name]} == {"digits"}
        before = after


def test_precision_and_compilation_are_settings_of_scores_only(default):
    before = every_setting(validation.load(default))
    default["experiments"]["digits"] |= {"precision": "float32", "compile": False}
    assert every_setting(validation.load(default)) == before
    default["experiments"]["digits"] |= {"precision": "bfloat16", "compile": True}
    after = every_setting(validation.load(default))
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {path for path in before if path.startswith("results/digits/scores/")}
    assert "'compile': True" in after["results/digits/scores/exact/0-of-1.parquet"]
    assert "'precision': 'bfloat16'" in after["results/digits/scores/exact/0-of-1.parquet"]


def test_a_record_older_or_much_newer_than_its_file_is_ignored(default, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = validation.load(default)
    path, settings = next(
        (p, s) for p, s in jobs.list_expected_outputs(loaded) if p.endswith("/digits/scores/exact/0-of-1.parquet")
    )
    scores.write(path, pd.DataFrame({"instance": [1]}), {"settings_digest": "of another's"})
    record = jobs.find_record(path)
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"params": [repr(settings)]}))
    jobs.check_records(loaded)  # written just after the file: Snakemake made it
    for later in (-60, 3600):
        os.utime(record, (os.stat(path).st_mtime + later,) * 2)
        with pytest.raises(ShapelineError, match=rf"has no record of 1 file .*: {path}; remove"):
            jobs.check_records(loaded)
    record.write_text(json.dumps({"params": ["{}"]}))  # Snakemake itself runs the job again
    jobs.check_records(loaded)
    record.write_text(json.dumps({"params": [repr(settings)]}))
    scores.write(path, pd.DataFrame({"instance": [1]}), {"settings_digest": digest(settings)})  # touched, or copied
    os.utime(record, (os.stat(path).st_mtime - 60,) * 2)
    jobs.check_records(loaded)


def test_tracked_files_follow_static_imports_without_the_infrastructure(root, monkeypatch):
    monkeypatch.chdir(root)
    kernel = job_code.list_sources("shapeline.designs.sampled")
    assert "workflow/shapeline/designs/sampled.py" in kernel
    assert "workflow/shapeline/designs/design.py" in kernel
    assert "workflow/shapeline/designs/local.py" not in kernel
    rows = job_code.list_sources("shapeline.attribution.attribution_job")
    assert "workflow/shapeline/games/game.py" in rows
    plumbing = (
        r"shapeline/(config|workflow|report|api|papers)/|registry|errors|/files\.py|__init__|designs/sampled|gradients/"
    )
    assert not re.search(plumbing, " ".join(rows))
    assert "workflow/shapeline/games/game.py" not in job_code.list_sources(
        "shapeline.attribution.attribution_job", without=["shapeline.games.game"]
    )


def test_a_file_counts_by_its_subpackage_and_not_by_its_stem(tmp_path, monkeypatch, request):
    copy = tmp_path / "workflow/shapeline"
    shutil.copytree(job_code.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job_code, "PACKAGE", copy)
    request.addfinalizer(forget)
    names = ("plan", "errors", "registry", "config")
    for name in names:
        (copy / f"games/{name}.py").write_text("")
        with open(copy / "metrics/error.py", "a") as file:
            file.write(f"\nfrom shapeline.games import {name}\n")
    files = job_code.list_sources("shapeline.metrics.error")
    assert {f"workflow/shapeline/games/{name}.py" for name in names} <= set(files)
    assert "workflow/shapeline/errors.py" not in files


def forget() -> None:
    """Clear the caches of the package's files, since a test reads other files."""
    for kept in (
        job_code._list_sources,
        job_code._list_imports,
        job_code._compute_digest,
        job_code._find_prefix,
        job_code._is_untracked,
    ):
        kept.cache_clear()
    job_code.list_script_modules.cache_clear()


def test_no_job_tracks_code_that_determines_none_of_its_numbers(root, monkeypatch, default):
    monkeypatch.chdir(root)
    loaded = validation.load(default)
    makers = [job_code.prepare_code(loaded, name) for name in loaded.datasets]
    makers += [of(loaded, name) for name in loaded.models for of in (job_code.train_code, job_code.randomise_code)]
    for name in loaded.experiments:
        makers.append(job_code.select_code(loaded, name))
        makers += [job_code.attribute_code(loaded, name, entry) for entry in runs.list_entries(loaded, name)]
        makers += [job_code.measure_code(loaded, name, metric) for metric in runs.list_metrics(loaded, name)]
    for files in makers:
        assert len(files) == len(set(files)) and not any(file.endswith("__init__.py") for file in files)
        assert not any(
            re.search(r"shapeline/(config|workflow|report|api|papers)/|registry|errors\.py", name) for name in files
        )
    for name in loaded.models:
        assert not any("/games/" in file for file in job_code.train_code(loaded, name))
    readers = {entry.module.rpartition(".")[2] for entry in job_code.SOURCES.values()}
    for name, entry in loaded.datasets.items():
        assert {os.path.basename(file)[:-3] for file in job_code.prepare_code(loaded, name)} & readers == {
            job_code.SOURCES[entry.source].module.rpartition(".")[2]
        }


def test_a_dataset_tracks_its_own_entry_and_what_reads_its_kind(root, monkeypatch, default):
    monkeypatch.chdir(root)
    loaded = validation.load(default)
    names = {
        name: {os.path.basename(file)[:-3] for file in job_code.prepare_code(loaded, name)} for name in loaded.datasets
    }
    assert "text" in names["reviews"] and "images" not in names["reviews"]
    assert "images" in names["crosses"] and not {"text", "tokenizer"} & names["crosses"]
    before = every_setting(loaded)

    def changed(**values) -> set[str]:
        """Return the digests that change with the entry of the breast cancer table."""
        entry = dataclasses.replace(job_code.SOURCES["breast_cancer"], **values)
        with monkeypatch.context() as patch:
            patch.setitem(job_code.SOURCES, "breast_cancer", entry)
            after = every_setting(loaded)
        return {path for path in before if before[path] != after[path]}

    assert changed(licence="another", citation="another") == set()
    assert changed(groups={}) == {"data/prepared/breast_cancer/card.json"}
    with monkeypatch.context() as patch:
        patch.setitem(job_code.SOURCES, "another", dataclasses.replace(job_code.SOURCES["digits"], name="another"))
        assert every_setting(loaded) == before


def test_a_method_tracks_its_own_entry(root, monkeypatch, default):
    """The same module under another function, which no file shows."""
    monkeypatch.chdir(root)
    loaded = validation.load(default)
    before = every_setting(loaded)
    entry = dataclasses.replace(job_code.METHODS["banzhaf"], function="shapeline.designs.exact:shapley")
    with monkeypatch.context() as patch:
        patch.setitem(job_code.METHODS, "banzhaf", entry)
        after = every_setting(loaded)
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {"results/cancer/scores/banzhaf/0-of-1.parquet", "results/reports/cancer.ipynb"}
    entry = dataclasses.replace(job_code.METRICS["cost"], statistics={"evaluations": "higher", "seconds": "lower"})
    with monkeypatch.context() as patch:
        patch.setitem(job_code.METRICS, "cost", entry)
        after = every_setting(loaded)
    changed = {path for path in before if before[path] != after[path]}
    assert changed and all(path.startswith("results/reports/") for path in changed)


def test_every_import_within_the_package_is_seen():
    """By the syntax tree, which is slower; an import in another form would be an edit that re-runs nothing."""
    for file in job_code.PACKAGE.rglob("*.py"):
        modules = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{file} has a relative import"
                modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        known = {job_code.find_module_file(one) for one in modules if one.startswith("shapeline.")}
        counted = {one for one in known if one.is_file() and not job_code._is_untracked(one)}
        assert set(job_code._list_imports(file)) == counted, file


def test_each_family_is_tracked_separately(root, monkeypatch, default):
    monkeypatch.chdir(root)
    loaded = validation.load(default)
    tracking = {
        entry
        for entry in runs.list_entries(loaded, "digits")
        if "workflow/shapeline/designs/sampled.py" in job_code.attribute_code(loaded, "digits", entry)
    }
    assert {loaded.experiments["digits"].methods[entry].method for entry in tracking} == {
        "kernel_shap",
        "sample_shapley",
    }


def test_lost_records_name_files_of_other_settings(default, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    default["run"] = ["digits"]
    loaded = validation.load(default)
    card, settings = "results/models/digits_cnn/card.json", jobs.train_job(loaded, "digits_cnn")
    os.makedirs(os.path.dirname(card))
    with open(card, "w") as file:
        json.dump({"settings": settings}, file)
    score = "results/digits/scores/lime/0-of-1.parquet"
    empty = pd.DataFrame({name: [] for name in scores.SCHEMA.names}, dtype=object)
    scores.write(score, empty, {"settings_digest": digest(jobs.attribute_job(loaded, "digits", "lime"))})
    jobs.check_records(loaded)
    default["experiments"]["digits"]["methods"]["lime"]["ridge"] = 2.0
    with pytest.raises(ShapelineError, match=rf"\n  rm {score}$"):
        jobs.check_records(validation.load(default))
    compared = "results/digits/metrics/compared.parquet"
    other = "results/digits/scores/exact/0-of-1.parquet"
    scores.write(other, empty, {"settings_digest": digest(jobs.attribute_job(loaded, "digits", "exact"))})
    scores.write(compared, empty, {"settings_digest": digest(jobs.compare_job(loaded, "digits"))})
    with pytest.raises(ShapelineError, match=rf"1 file .*\n  rm {score} {compared}$"):
        jobs.check_records(validation.load(default))  # the comparison, too: Snakemake would keep it as it is
    os.unlink(compared)
    os.unlink(other)
    record = jobs.find_record(score)
    record.parent.mkdir(parents=True)
    record.touch()  # empty, as a full disk leaves it: Snakemake passes over it
    with pytest.raises(ShapelineError, match=rf"\n  rm {score}$"):
        jobs.check_records(validation.load(default))
    record.write_text("{}")  # Snakemake has a record: it will compare the settings itself
    jobs.check_records(validation.load(default))


def test_a_job_tracks_its_code_by_content_and_user_files_by_path(default, tmp_path, monkeypatch, request):
    copy = tmp_path / "workflow/shapeline"
    shutil.copytree(job_code.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job_code, "PACKAGE", copy)
    request.addfinalizer(forget)
    (tmp_path / "mine.parquet").touch()
    default["experiments"]["digits"]["methods"]["mine"] = {"method": "external", "path": "mine.parquet"}
    loaded = validation.load(default)

    def codes() -> dict[str, str]:
        forget()
        every = dict(jobs.list_expected_outputs(loaded))  # of a job that measures by several metrics the code of each
        return {
            path: job.get("code") or {name: one["code"] for name, one in job.items()} for path, job in every.items()
        }

    before, pages = codes(), jobs.compute_digests(loaded)
    os.utime(copy / "games/game.py")
    assert codes() == before
    with open(copy / "designs/sampled.py", "a") as file:
        file.write("# another line\n")
    after = codes()
    changed = {path for path in before if after[path] != before[path] and "/digits/" in path}
    assert changed == {
        f"results/digits/scores/{entry}/0-of-1.parquet"
        for entry in runs.list_all_entries(loaded, "digits")
        if loaded.experiments["digits"].methods[entry.partition("@")[0]].method in ("kernel_shap", "sample_shapley")
    }
    assert jobs.compute_digests(loaded) == pages  # of the settings, which are the same
    assert job_code.list_user_modules(job_code.attribute_code(loaded, "digits", "mine")) == ["mine.parquet"]


@pytest.mark.parametrize("text", ["", '{"settings": {"arch', "[]"])
@pytest.mark.parametrize(
    "path", ["data/prepared/digits38/card.json", "results/models/digits_cnn/card.json", "results/reports/digits.ipynb"]
)
def test_a_damaged_card_or_notebook_is_named_with_the_remedy(default, tmp_path, monkeypatch, path, text):
    monkeypatch.chdir(tmp_path)
    loaded = validation.load(default)
    os.makedirs(os.path.dirname(path))
    with open(path, "w") as file:
        file.write(text)
    with pytest.raises(
        ShapelineError, match=rf"^{path}: damaged \(.+\); remove it and run again, which re-computes it$"
    ):
        jobs.check_records(loaded)
    if "prepared" in path:
        with pytest.raises(ShapelineError, match=f"{path}: damaged"):
            messages.estimate_run(loaded)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_the_tables_of_a_framework_name_every_module_that_is_loaded_by_name(framework):
    from shapeline.games import execution
    from shapeline.models import classifier, training

    named = {execution.BACKENDS[framework], classifier.MODULES[framework]}
    named |= {execution.BACKENDS["onnx"]} if framework in classifier.FRAMEWORKS else set()
    assert {job_code.MODEL_CODE[framework], *job_code.ENGINE_CODE[framework]} == named
    assert job_code.TRAINING[framework] == training.TRAINERS[framework]


def test_a_job_tracks_only_the_modules_of_its_framework(root, monkeypatch, default):
    monkeypatch.chdir(root)
    loaded = validation.load(default)
    for experiment, own, other in (("digits", "torch_", "tf_|keras"), ("reviews", "tf_|keras", "torch_")):
        entry = "gradient_x_input"
        for files in (
            job_code.attribute_code(loaded, experiment, entry),
            job_code.measure_code(loaded, experiment, "log_odds"),
            job_code.select_code(loaded, experiment),
            job_code.train_code(loaded, loaded.experiments[experiment].model),
        ):
            names = " ".join(os.path.basename(file) for file in files)
            assert re.search(own, names) and not re.search(other, names)


def test_custom_texts_are_sharded(default):
    experiment = default["experiments"]["reviews"]
    experiment["instances"], experiment["shards"] = {"texts": ["good", "bad"]}, 8
    del experiment["metrics"]["ground_truth_words"]
    assert runs.shards(validation.load(default), "reviews") == 2
    experiment["instances"]["count"] = 3
    with pytest.raises(ShapelineError, match=r"reviews\.instances\.count: custom texts are all explained"):
        validation.load(default)


def test_a_run_on_custom_data_has_no_pages_of_the_papers(default, tmp_path):
    """Nor do they come back with an experiment that is not run."""
    (tmp_path / "own.csv").write_text("a,c,b\n" + "1,3,x\n2,5,y\n" * 20)
    default["datasets"]["own"] = {"source": "table_file", "path": str(tmp_path / "own.csv"), "target": "b"}
    default["models"]["own"] = {"dataset": "own", "architecture": "mlp"}
    methods = {"kernel": {"method": "kernel_shap"}, "random": {"method": "random"}}
    own = {"model": "own", "features": {"kind": "column"}, "reference": "mean", "instances": {"count": 1}}
    default["experiments"]["own"] = own | {"methods": methods, "metrics": {"cost": {}}}
    assert runs.list_pages(validation.load({**default, "run": ["own", "digits"]})) == ["theory", "accuracy"]
    assert runs.list_pages(validation.load({**default, "run": ["own"]})) == []


def test_a_rival_on_words_tracks_the_method_that_sets_its_budget(root, monkeypatch, default):
    monkeypatch.chdir(root)
    default["experiments"]["reviews"]["methods"]["rival"] = {"method": "kernel_shap", "match_budget_of": "l_shapley"}
    files = job_code.attribute_code(validation.load(default), "reviews", "rival")
    assert "workflow/shapeline/designs/local.py" in files and "workflow/shapeline/designs/sampled.py" in files


def test_a_budget_too_small_for_any_document_is_reported_before_any_job(default):
    default["experiments"]["reviews"]["budget"] = 1
    with pytest.raises(ShapelineError, match=r"reviews\.budget: 1 x d is too few for kernel_shap; set 2"):
        validation.load(default)


def test_a_default_budget_is_at_least_the_minimum(default):
    """Of a document it depends on its number of words, so that its job chooses it; of patches the plan does."""
    for name, method in (("reviews", "stratified_svarm"), ("digits", "sample_interactions")):
        default["experiments"][name]["methods"]["few"] = {"method": method}
        default["experiments"][name].pop("budget", None)
    loaded = validation.load(default)
    document, patches = (jobs.attribute_settings(loaded, name, "few") for name in ("reviews", "digits"))
    assert patches["budget"] == 242 / 16 and "budget" not in document
    features = Features("word", (20,), np.arange(20), ())
    assert parse(document).method.resolve_budget(features, None) == 122 / 20
    default["experiments"]["reviews"]["methods"]["few"]["intermediate_budgets"] = [2]
    with pytest.raises(ShapelineError, match=r"few\.intermediate_budgets: the default budget .* give a budget"):
        validation.load(default)
