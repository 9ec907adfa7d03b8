"""The settings of each job: one canonical dict, from wildcards alone."""

from shapeline.config.derived import budget_of, canonical, feature_shape, framework_of
from shapeline.config.types import Config
from shapeline.datasets.registry import remote_files
from shapeline.methods.parameters import GoodEnough
from shapeline.methods.registry import METHODS
from shapeline.plan.runs import all_labels, labels, metric_names, shards, split_label, trainings


def fetch_settings(source: str, file: str) -> dict:
    """What identifies an official file: where it is from and its checksum, not how it came here."""
    listed = {known.name: known for known in remote_files(source)}
    return {"checksum": listed[file].checksum, "file": file, "source": source}


def prepare_settings(config: Config, dataset: str) -> dict:
    return canonical({**canonical(config.datasets[dataset]), "seed": config.seed})


def train_settings(config: Config, model: str, number: int = 0) -> dict:
    """Settings of a model's training, or of that which other seeds number."""
    framework = framework_of(config.models[model])
    named = {"framework": None if framework == "torch" else framework}  # torch written out is no other setting
    return canonical({**canonical(config.models[model]), **named, "seed": config.seed + number})


def randomise_settings(config: Config, variant: str) -> dict:
    """How many last layers of a model are drawn anew (all where nothing is said), and by which seed."""
    return canonical({"layers": None if variant == "full" else int(variant.removeprefix("top")), "seed": config.seed})


def select_settings(config: Config, experiment: str) -> dict:
    entry = config.experiments[experiment]
    return canonical(
        {
            "instances": entry.instances,
            "target": None if entry.target == "predicted" else entry.target,
            **({"reference": entry.reference} if entry.model else {}),
            "dataset": entry.dataset,  # without a model, or where the data are not its model's
            "features": entry.features,
            "seed": config.seed,
        }
    )


def attribute_settings(config: Config, experiment: str, label: str) -> dict:
    """All that decides the scores of one label, and nothing of the other labels."""
    entry = config.experiments[experiment]
    label, variant = split_label(label)
    method = entry.methods[label]
    settings = {
        "method": method,
        "variant": variant,
        "features": entry.features,
        "seed": config.seed,
        **({"reference": entry.reference, "value": entry.value} if entry.model else {}),
        "dataset": entry.dataset,
    }
    if entry.seed_instances and variant in trainings(config, experiment):
        settings["instances"] = max(entry.seed_instances, shards(config, experiment))  # one a file at least
    if entry.timing != "batch":
        settings["timing"] = entry.timing
    if entry.precision != "float32":
        settings["precision"] = entry.precision
    if entry.compile:
        settings["compile"] = True
    if entry.time_limit:
        settings["time_limit"] = entry.time_limit
    if METHODS[method.method].sampled:
        settings |= {"repeats": None if entry.repeats == 1 else entry.repeats}
        if method.rival_of and feature_shape(config, entry) is None:  # known when the instance is seen
            settings["method"] = {**canonical(method), "rival": canonical(entry.methods[method.rival_of])}
        else:
            settings["budget"] = _budget(config, experiment, label)
    return canonical(settings)


def same_labels(config: Config, experiment: str, label: str) -> list[tuple[str, str]]:
    """Other experiments under `run` with their exact labels that ask the very same of the same model."""
    entry, (own, variant) = config.experiments[experiment], split_label(label)
    if not METHODS[entry.methods[own].method].exact:
        return []
    mine, found = attribute_settings(config, experiment, label), []
    for other in config.run:
        if other == experiment or config.experiments[other].model != entry.model:
            continue
        for theirs in all_labels(config, other):
            name, derived = split_label(theirs)
            if derived == variant and METHODS[config.experiments[other].methods[name].method].exact:
                same = attribute_settings(config, other, theirs) == mine
                found += [(other, theirs)] if same else []
    return found


def _budget(config: Config, experiment: str, label: str) -> float | dict:
    """A multiple of d; or what has to hold before an instance is left, with the most that it may take."""
    budget = config.experiments[experiment].methods[label].budget
    if isinstance(budget, GoodEnough):
        return budget.model_dump(exclude_none=True)
    return budget_of(config, experiment, label)


def measure_settings(config: Config, experiment: str, metric: str) -> dict:
    return canonical({"metric": metric, "parameters": getattr(config.experiments[experiment].metrics, metric)})


def compare_settings(config: Config, experiment: str, metric: str) -> dict:
    return canonical({"metric": metric, "seed": config.seed})


def report_settings(config: Config, experiment: str) -> dict:
    entry = config.experiments[experiment]
    described = {}
    for label in labels(config, experiment):
        parameters = canonical(entry.methods[label])
        method = METHODS[parameters.pop("method")]
        described[label] = {
            "method": entry.methods[label].method,
            "family": method.family,
            "parameters": parameters,
            "is_control": method.control,
            "sampled": method.sampled,
        }
    return canonical(
        {
            "report": entry.report,
            **(
                {"budget": float(entry.budget), "reference": entry.reference, "value": entry.value}
                if entry.model
                else {}
            ),
            "dataset": entry.dataset,
            "target": None if entry.target == "predicted" else entry.target,
            "features": entry.features,
            "timing": None if entry.timing == "batch" else entry.timing,
            "repeats": entry.repeats,
            "seeds": None if entry.seeds == 1 else entry.seeds,
            "exact": getattr(entry.metrics.error, "reference", None),
            "metrics": metric_names(config, experiment),
            "labels": described,
            "order": labels(config, experiment),
        }
    )
