"""The settings of each job: one canonical dict, from wildcards alone."""

from shapeline.config.derived import budget_of, canonical, feature_shape, framework_of
from shapeline.config.types import Config, Experiment
from shapeline.datasets.registry import remote_files
from shapeline.methods.parameters import StoppingRule
from shapeline.methods.registry import METHODS
from shapeline.workflow.runs import count_trainings, labels, metric_names, split_label, variants


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
            **_game_settings(entry),
            "features": entry.features,
            "seed": config.seed,
        }
    )


def attribute_settings(config: Config, experiment: str, label: str) -> dict:
    """All that decides the scores of one label, and nothing of the other labels."""
    entry = config.experiments[experiment]
    label, randomised = split_label(label)
    method = entry.methods[label]
    settings = {
        "method": method,
        "features": entry.features,
        "seed": config.seed,
        **({"reference": entry.reference, "value": entry.value} if entry.model else {}),
        "dataset": entry.dataset,
        **_game_settings(entry),
    }
    if randomised:
        settings["randomised"] = variants(config, experiment)
    elif (number := count_trainings(config, experiment, label)) > 1:
        settings |= {"training_seeds": number, "training_instances": entry.instances_per_training_seed}
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
        if method.match_budget_of and feature_shape(config, entry) is None:  # known when the instance is seen
            settings["method"] = {**canonical(method), "rival": canonical(entry.methods[method.match_budget_of])}
        else:
            settings["budget"] = _budget(config, experiment, label)
    return canonical(settings)


def _game_settings(entry: Experiment) -> dict:
    """The game of an experiment and the files that it reads, or the prompts that it explains."""
    if entry.prompts:
        return {"prompts": entry.prompts}
    return {"game": entry.game, "game_files": entry.game_files or None} if entry.game else {}


def _budget(config: Config, experiment: str, label: str) -> float | dict:
    """A multiple of d; or what has to hold before an instance is left, with the most that it may take."""
    budget = config.experiments[experiment].methods[label].budget
    if isinstance(budget, StoppingRule):
        return budget.model_dump(exclude_none=True)
    return budget_of(config, experiment, label)


def measure_settings(config: Config, experiment: str, metric: str) -> dict:
    return canonical({"metric": metric, "parameters": getattr(config.experiments[experiment].metrics, metric)})


def compare_settings(config: Config, experiment: str) -> dict:
    return canonical({"metrics": metric_names(config, experiment), "seed": config.seed})


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
            **({**_game_settings(entry), "budget": float(entry.budget)} if entry.has_no_data else {}),
            **({"value": "log_probability"} if entry.prompts else {}),
            "target": None if entry.target == "predicted" else entry.target,
            "features": entry.features,
            "timing": None if entry.timing == "batch" else entry.timing,
            "repeats": entry.repeats,
            "training_seeds": None if entry.training_seeds == 1 else entry.training_seeds,
            "exact": getattr(entry.metrics.error, "reference", None),
            "metrics": metric_names(config, experiment),
            "labels": described,
            "order": labels(config, experiment),
        }
    )
