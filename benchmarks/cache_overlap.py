"""How many coalitions the methods of an experiment share, and what a cache of values saves.

    OMP_NUM_THREADS=1 python benchmarks/cache_overlap.py [--configfile FILE] [--measure EXPERIMENT]

Counts need no data: the designs are built as the run builds them, for every experiment of `run`. What is measured is
the attribution of an experiment's instances by every label in turn, designs to scores, without a cache and with one
that starts empty; the model and the instances are those of a finished run. Jobs that run at the same time share less.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from snakemake.utils import update_config

from shapeline.attribution import selection, subjects
from shapeline.attribution.run import CHUNK, CHUNK_VALUES
from shapeline.config.derived import feature_shape
from shapeline.config.types import Config
from shapeline.config.validation import load
from shapeline.designs.design import Design, unique_rows
from shapeline.engine.cache import Cache, key_of, overlap
from shapeline.engine.question import Question
from shapeline.methods.calling import PLANNED
from shapeline.methods.design import build
from shapeline.methods.registry import METHODS
from shapeline.plan import paths, runs
from shapeline.plan.settings import attribute_settings
from shapeline.seeds import seed_of


def main() -> None:
    arguments = parse()
    raw: dict = {}
    for file in ["config.yaml", *arguments.configfile]:
        update_config(raw, yaml.safe_load(Path(file).read_text()))
    config = load(raw)
    for experiment in config.run:
        count(config, experiment)
    if arguments.measure:
        measure(config, arguments.measure)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", nargs="+", default=[], help="files on top of config.yaml")
    parser.add_argument("--measure", metavar="EXPERIMENT", help="also time its attributions; its run must be finished")
    return parser.parse_args()


def designs_of(config: Config, experiment: str, label: str, repeat: int) -> list[Design]:
    """One a budget, as `attribution.attribute` builds them; none for a method that is no design."""
    settings = attribute_settings(config, experiment, label)
    if not METHODS[settings["method"]["method"]].is_design:
        return []
    parameters = {key: value for key, value in settings["method"].items() if key not in PLANNED}
    shape = feature_shape(config, config.experiments[experiment])
    budgets = [*settings["method"].get("snapshots", ()), settings.get("budget")]
    seed = seed_of(settings["seed"], label, repeat)
    return [build(parameters, shape, budget, seed) for budget in budgets]


def asked(designs: list[Design], d: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The distinct coalitions of all budgets and the two ends, which every score file states; each design's columns."""
    masks = np.concatenate([*(design.masks for design in designs), np.zeros((1, d), bool), np.ones((1, d), bool)])
    first, inverse = unique_rows(masks)
    return masks[first], np.split(inverse, np.cumsum([design.evaluations for design in designs]))[:-1]


def repeats(config: Config, experiment: str, label: str) -> range:
    return range(attribute_settings(config, experiment, label).get("repeats", 1))


def count(config: Config, experiment: str) -> None:
    """Print the overlap of an experiment's labels."""
    shape = feature_shape(config, config.experiments[experiment])
    if shape is None:
        print(f"\n{experiment}: left out, for its features depend on the instance")
        return
    d = int(np.prod(shape))
    masks = {
        label: np.concatenate(
            [asked(designs_of(config, experiment, label, i), d)[0] for i in repeats(config, experiment, label)]
        )
        for label in runs.labels(config, experiment)
    }
    table = overlap(masks)
    print(f"\n{experiment}, d = {d}: coalitions an instance\n{table.to_string()}")
    told(f"{experiment}, every label", table)
    cheap = [label for label in table.index if not METHODS[method_of(config, experiment, label)].exact]
    told(f"{experiment}, without the exact labels", overlap({label: masks[label] for label in cheap}))


def method_of(config: Config, experiment: str, label: str) -> str:
    return config.experiments[experiment].methods[label].method


def told(what: str, table: pd.DataFrame) -> None:
    evaluations, distinct = table["evaluations"].sum(), table["new"].sum()
    print(f"{what}: {evaluations:,} evaluations, {distinct:,} distinct, {1 - distinct / evaluations:.1%} saved")


def measure(config: Config, experiment: str) -> None:
    """Print the seconds of every label without and with a cache, in the order of the run's labels."""
    labels = runs.labels(config, experiment)
    model = config.experiments[experiment].model
    settings = attribute_settings(config, experiment, labels[0])
    chosen = f"{config.results}/{experiment}/instances.parquet"
    if feature_shape(config, config.experiments[experiment]) is None:
        raise SystemExit(f"{experiment}: its features depend on the instance; choose another experiment")
    if not Path(chosen).exists():
        raise SystemExit(f"{chosen} is not there; make it with: snakemake --cores all {experiment}")
    weights, arrays = (
        paths.model_files(config, model)["weights"],
        paths.prepared(config.models[model].dataset)["arrays"],
    )
    bench = subjects.load_subject(weights, arrays, settings, "cpu")
    form = subjects.form_for(chosen, bench, "cpu")
    question = Question(bench.model, bench.reference, bench.features, form=form)
    selected = selection.read(chosen)
    inputs = bench.dataset.inputs[selected["row"].to_numpy()]
    ids, targets = selected["instance"].to_numpy(), selected["prediction"].to_numpy()

    def attribute(label: str, cache: Cache | None) -> tuple[list[np.ndarray], float, int]:
        """Values of every chunk, seconds and values reused."""
        began, every, reused = time.perf_counter(), [], 0
        for repeat in repeats(config, experiment, label):
            designs = designs_of(config, experiment, label, repeat)
            masks, columns = asked(designs, bench.features.d)
            step = max(1, min(CHUNK, CHUNK_VALUES // len(masks)))
            for start in range(0, len(inputs), step):
                part = slice(start, start + step)

                def evaluate(rows, columns, part=part, masks=masks):
                    return question.values(inputs[part][rows], masks[columns], targets[part][rows]), 0.0

                if cache is None or not designs:
                    values, _ = evaluate(np.arange(len(inputs[part])), np.arange(len(masks)))
                else:
                    values, again, _ = cache.values(ids[part], targets[part], masks, evaluate)
                    reused += int(again.sum())
                for design, own in zip(designs, columns, strict=True):
                    design.attribute(values[:, own])
                every.append(values)
        return every, time.perf_counter() - began, reused

    attribute(labels[-1], None)  # sets up threads and traces
    rows, difference = {}, 0.0
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(folder, key_of([weights, arrays], {}))
        for label in labels:
            plain, without, _ = attribute(label, None)
            values, seconds, reused = attribute(label, cache)
            total = sum(part.size for part in plain)
            rows[label] = {"evaluations": total, "reused": reused, "seconds": without, "with cache": seconds}
            difference = max(difference, *(abs(a - b).max() for a, b in zip(plain, values, strict=True)))
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.parquet"))
    table = pd.DataFrame.from_dict(rows, orient="index")
    print(f"\n{experiment}: {len(inputs)} instances, one label after another\n{table.round(3).to_string()}")
    print_saved(config, experiment, table)
    print(f"on disk {size / 1e6:.1f} MB; values differ from those without it by at most {difference:.1e}")


def print_saved(config: Config, experiment: str, table: pd.DataFrame) -> None:
    """How many of the seconds of all labels the cache saves, and of those that are not exact."""
    exact = [label for label in table.index if METHODS[method_of(config, experiment, label)].exact]
    for what, part in (("every label", table), ("without the exact labels", table.drop(exact))):
        before, after = part["seconds"].sum(), part["with cache"].sum()
        print(f"{what}: {before:.2f} s, with the cache {after:.2f} s ({1 - after / before:.1%} saved)")


if __name__ == "__main__":
    main()
