"""What the Snakefile asks of the plan: paths from counts, settings of one label, tracked files, lost records."""

import ast
import json
import os
import random
import re
import shutil

import pandas as pd
import pytest

from shapeline import config, estimates, plan, scores
from shapeline.errors import ShapelineError
from shapeline.seeds import digest


def shuffled(value):
    if isinstance(value, dict):
        keys = list(value)
        random.Random(1).shuffle(keys)
        return {key: shuffled(value[key]) for key in reversed(keys)}
    return value


def every_setting(loaded) -> dict:
    return {path: repr(settings) for path, settings in plan._expected(loaded)}


def test_settings_do_not_depend_on_the_order_of_keys(default):
    assert every_setting(config.load(default)) == every_setting(config.load(shuffled(default)))


def test_a_new_label_changes_no_other_labels_settings(default):
    before = every_setting(config.load(default))
    default["experiments"]["digits"]["methods"]["more"] = {"method": "kernel_shap", "budget": 8}
    after = every_setting(config.load(default))
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {"results/reports/digits.ipynb"}
    assert {path for path in set(after) - set(before)} >= {"results/digits/scores/more/0-of-1.parquet"}


def test_the_budget_belongs_to_sampled_methods_only(default):
    before = every_setting(config.load(default))
    default["experiments"]["digits"]["budget"] = 8
    after = every_setting(config.load(default))
    changed = {path.split("/")[3] for path in before if before[path] != after[path] and "/digits/scores/" in path}
    assert changed == {"kernel_shap", "sample_shapley", "lime"}


def test_shards_come_from_counts(default):
    default["experiments"]["digits"]["instances"]["count"] = 501
    loaded = config.load(default)
    assert plan.shards(loaded, "digits") == 3
    assert plan.score_files(loaded, "digits", "exact")[2] == "results/digits/scores/exact/2-of-3.parquet"
    default["experiments"]["digits"]["shards"] = 4
    assert plan.shards(config.load(default), "digits") == 4


def test_the_shards_of_one_experiment_touch_no_other(default):
    before = every_setting(config.load(default))
    default["experiments"]["digits"]["shards"] = 3
    after = every_setting(config.load(default))
    changed = set(before.items()) ^ set(after.items())
    assert changed
    assert {path.rpartition("/")[0].split("scores/")[0] for path, _ in changed} == {"results/digits/"}
    assert all(before[path] == after[path] for path in before.keys() & after.keys())


def test_an_experiments_digest_changes_with_its_settings_alone(default):
    before = plan.digests(config.load(default))
    assert list(before) == default["run"]
    assert plan.digests(config.load({**shuffled(default), "run": default["run"], "device": "cpu"})) == before
    default["experiments"]["digits"]["shards"] = 3
    assert plan.digests(config.load(default)) == before
    for section, key, value in (("metrics", "error", {"reference": "exact", "top": 0.5}), ("report", "title", "other")):
        default["experiments"]["digits"].setdefault(section, {})[key] = value
        after = plan.digests(config.load(default))
        assert {name for name in before if before[name] != after[name]} == {"digits"}
        before = after


def test_precision_and_compilation_are_settings_of_the_scores_alone(default):
    before = every_setting(config.load(default))
    default["experiments"]["digits"] |= {"precision": "float32", "compile": False}
    assert every_setting(config.load(default)) == before
    default["experiments"]["digits"] |= {"precision": "bfloat16", "compile": True}
    after = every_setting(config.load(default))
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {path for path in before if path.startswith("results/digits/scores/")}
    assert "'compile': True" in after["results/digits/scores/exact/0-of-1.parquet"]
    assert "'precision': 'bfloat16'" in after["results/digits/scores/exact/0-of-1.parquet"]


def test_a_record_older_or_much_younger_than_its_file_is_not_believed(default, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = config.load(default)
    path, settings = next(
        (p, s) for p, s in plan._expected(loaded) if p.endswith("/digits/scores/exact/0-of-1.parquet")
    )
    scores.write(path, pd.DataFrame({"instance": [1]}), {"settings_digest": "of another's"})
    record = plan._record(path)
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"params": [repr(settings)]}))
    plan.check_records(loaded)  # written just after the file: Snakemake made it
    for later in (-60, 3600):
        os.utime(record, (os.stat(path).st_mtime + later,) * 2)
        with pytest.raises(ShapelineError, match=rf"no true record of 1 output\(s\) .*: {path}\. Remake"):
            plan.check_records(loaded)
    record.write_text(json.dumps({"params": ["{}"]}))  # Snakemake itself runs the job again
    plan.check_records(loaded)
    record.write_text(json.dumps({"params": [repr(settings)]}))
    scores.write(path, pd.DataFrame({"instance": [1]}), {"settings_digest": digest(settings)})  # touched, or copied
    os.utime(record, (os.stat(path).st_mtime - 60,) * 2)
    plan.check_records(loaded)


def test_tracked_files_follow_static_imports_and_leave_out_the_plumbing(root, monkeypatch):
    monkeypatch.chdir(root)
    kernel = plan.sources("shapeline.designs.sampled")
    assert "workflow/shapeline/designs/sampled.py" in kernel
    assert "workflow/shapeline/designs/design.py" in kernel
    assert "workflow/shapeline/designs/connected.py" not in kernel
    engine = plan.sources("shapeline.attribution")
    assert "workflow/shapeline/engine.py" in engine
    for name in ("methods", "config", "plots", "errors", "plan", "jobs"):
        assert f"workflow/shapeline/{name}.py" not in engine
    assert not any("designs/sampled" in file or "gradients/" in file for file in engine)


def test_every_import_within_the_package_is_seen():
    """By the syntax tree, which is slower; an import in another form would be an edit that re-runs nothing."""
    for file in plan.PACKAGE.rglob("*.py"):
        modules = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{file} has a relative import"
                modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        known = {plan._file(one) for one in modules if one.startswith("shapeline.")}
        assert set(plan._imports(file)) == {one for one in known if one.is_file() and not plan._untracked(one)}, file


def test_each_family_is_tracked_alone(root, monkeypatch, default):
    monkeypatch.chdir(root)
    loaded = config.load(default)
    tracking = {
        label
        for label in plan.labels(loaded, "digits")
        if "workflow/shapeline/designs/sampled.py" in plan.attribute_code(loaded, "digits", label)
    }
    assert {loaded.experiments["digits"].methods[label].method for label in tracking} == {
        "kernel_shap",
        "sample_shapley",
    }


def test_lost_records_name_what_was_made_with_other_settings(default, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    default["run"] = ["digits"]
    loaded = config.load(default)
    card, settings = "results/models/digits_cnn/card.json", plan.train_job(loaded, "digits_cnn")
    os.makedirs(os.path.dirname(card))
    with open(card, "w") as file:
        json.dump({"settings": settings}, file)
    score = "results/digits/scores/lime/0-of-1.parquet"
    empty = pd.DataFrame({name: [] for name in scores.SCHEMA.names}, dtype=object)
    scores.write(score, empty, {"settings_digest": digest(plan.attribute_job(loaded, "digits", "lime"))})
    plan.check_records(loaded)
    default["experiments"]["digits"]["methods"]["lime"]["ridge"] = 2.0
    with pytest.raises(ShapelineError, match=rf"rm {score} && snakemake"):
        plan.check_records(config.load(default))
    record = plan._record(score)
    record.parent.mkdir(parents=True)
    record.touch()  # empty, as a full disk leaves it: Snakemake passes over it
    with pytest.raises(ShapelineError, match=rf"rm {score} && snakemake"):
        plan.check_records(config.load(default))
    record.write_text("{}")  # Snakemake has a record: it will compare the settings itself
    plan.check_records(config.load(default))


def test_a_job_knows_its_code_by_content_and_the_users_files_by_path(default, tmp_path, monkeypatch):
    copy = tmp_path / "workflow/shapeline"
    shutil.copytree(plan.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "PACKAGE", copy)
    (tmp_path / "mine.parquet").touch()
    default["experiments"]["digits"]["methods"]["mine"] = {"method": "external", "path": "mine.parquet"}
    loaded = config.load(default)

    def codes() -> dict[str, str]:
        for kept in (plan._sources, plan._imports, plan._code_digest, plan._package):
            kept.cache_clear()
        return {path: settings["code"] for path, settings in plan._expected(loaded)}

    before, pages = codes(), plan.digests(loaded)
    os.utime(copy / "engine.py")
    assert codes() == before
    with open(copy / "designs/sampled.py", "a") as file:
        file.write("# another line\n")
    after = codes()
    changed = {path for path in before if after[path] != before[path] and "/digits/" in path}
    assert changed == {
        f"results/digits/scores/{label}/0-of-1.parquet"
        for label in plan.labels(loaded, "digits")
        if loaded.experiments["digits"].methods[label].method in ("kernel_shap", "sample_shapley")
    }
    assert plan.digests(loaded) == pages  # of the settings, which are the same
    assert plan.own(plan.attribute_code(loaded, "digits", "mine")) == ["mine.parquet"]


@pytest.mark.parametrize("text", ["", '{"settings": {"arch', "[]"])
@pytest.mark.parametrize(
    "path", ["data/prepared/digits38/card.json", "results/models/digits_cnn/card.json", "results/reports/digits.ipynb"]
)
def test_a_damaged_card_or_notebook_is_named_with_the_remedy(default, tmp_path, monkeypatch, path, text):
    monkeypatch.chdir(tmp_path)
    loaded = config.load(default)
    os.makedirs(os.path.dirname(path))
    with open(path, "w") as file:
        file.write(text)
    with pytest.raises(
        ShapelineError, match=rf"^{path} is damaged \(.+\); remove it and run again, which makes it anew$"
    ):
        plan.check_records(loaded)
    if "prepared" in path:
        with pytest.raises(ShapelineError, match=f"{path} is damaged"):
            estimates.of_run(loaded)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_the_tables_of_a_framework_name_every_module_that_is_loaded_by_name(framework):
    from shapeline import engine
    from shapeline.models import classifier, training

    named = {engine.BACKENDS[framework], engine.WINDOWS[framework], classifier.MODULES[framework]}
    assert set(plan.FRAMEWORK_CODE[framework]) == named
    assert plan.TRAINING[framework] == training.TRAINERS[framework]


def test_a_job_tracks_the_modules_of_its_own_framework_alone(root, monkeypatch, default):
    monkeypatch.chdir(root)
    loaded = config.load(default)
    for experiment, own, other in (("digits", "torch", "tf_|keras"), ("reviews", "tf_", "torch_")):
        label = "gradient_x_input"
        for files in (
            plan.attribute_code(loaded, experiment, label),
            plan.measure_code(loaded, experiment, "log_odds"),
            plan.train_code(loaded, loaded.experiments[experiment].model),
        ):
            names = " ".join(os.path.basename(file) for file in files)
            assert re.search(own, names) and not re.search(other, names)


def test_texts_of_ones_own_are_what_is_sharded(default):
    experiment = default["experiments"]["reviews"]
    experiment["instances"], experiment["shards"] = {"texts": ["good", "bad"]}, 8
    del experiment["metrics"]["decisive"]
    assert plan.shards(config.load(default), "reviews") == 2
    experiment["instances"]["count"] = 3
    with pytest.raises(ShapelineError, match=r"reviews\.instances\.count: texts of one's own are all explained"):
        config.load(default)


def test_a_rival_on_words_tracks_the_method_that_sets_its_budget(root, monkeypatch, default):
    monkeypatch.chdir(root)
    default["experiments"]["reviews"]["methods"]["rival"] = {"method": "kernel_shap", "rival_of": "l_shapley"}
    files = plan.attribute_code(config.load(default), "reviews", "rival")
    assert "workflow/shapeline/designs/local.py" in files and "workflow/shapeline/designs/sampled.py" in files


def test_a_budget_too_small_for_any_document_is_told_before_any_job(default):
    default["experiments"]["reviews"]["budget"] = 1
    with pytest.raises(ShapelineError, match=r"reviews\.budget: 1 x d is too few for kernel_shap: set 2"):
        config.load(default)
