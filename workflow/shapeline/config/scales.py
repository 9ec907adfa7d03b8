"""The scales of a run: everything small (smoke), or beyond the papers."""

from shapeline.config.types import Config
from shapeline.datasets.registry import SOURCES

# The tiny experiment behind the target `smoke`: always defined, whatever config.yaml says.
SMOKE = {
    "datasets": {"smoke": {"source": "digits", "classes": [3, 8]}},
    "models": {"smoke": {"dataset": "smoke", "architecture": "digits_cnn", "training": {"epochs": 2}}},
    "experiments": {
        "smoke": {
            "model": "smoke",
            "features": {"kind": "patch", "size": 4},
            "instances": {"count": 8},
            "methods": {
                "exact": {"method": "shapley"},
                "kernel_shap": {"method": "kernel_shap"},
                "occlusion": {"method": "occlusion"},
                "random": {"method": "random"},
            },
            "metrics": {"log_odds": {}, "error": {"reference": "exact"}, "efficiency": {}, "cost": {}},
            "report": {"title": "Smoke test"},
        }
    },
}
# What `scale: smoke` leaves: of images made, of sizes of an ablation, and of what a method may say that it spends.
SMOKE_PICTURES, SMOKE_SIZES = 400, 20
SMOKE_MOST = {"evaluations": 64, "samples": 10, "permutations": 20}


def _shrunk(config: Config) -> Config:
    """The same experiments at smoke scale, under their own folder."""
    small = config.model_dump(exclude_defaults=True)
    small |= {"results": f"{config.results}/smoke", "shards": "auto"}
    for name, dataset in small["datasets"].items():
        source = SOURCES.get(config.datasets[name].source)
        if source and source.count:
            dataset["count"] = min(SMOKE_PICTURES, dataset.get("count", source.count))
    for model in small["models"].values():
        training = model.get("training", {})
        model["training"] = {**training, "epochs": min(2, training.get("epochs", 2))}
    for name, experiment in small["experiments"].items():
        full = config.experiments[name]
        experiment.pop("shards", None)
        chosen = experiment.get("instances", {})
        if not {"texts", "near"} & set(chosen):
            chosen = {key: chosen[key] for key in chosen if key != "correct"}  # a model of two epochs errs
            experiment["instances"] = {**chosen, "count": min(16, full.instances.count), "fewer_ok": True}
        for key in ("repeats", "training_seeds"):
            if getattr(full, key) > 2:
                experiment[key] = 2
        if full.metrics.ablation:
            experiment["metrics"]["ablation"] = {"sizes": min(SMOKE_SIZES, full.metrics.ablation.sizes)}
        for label, entry in experiment["methods"].items():
            for key, most in SMOKE_MOST.items():
                if (getattr(full.methods[label], key, None) or 0) > most:
                    entry[key] = most
    return Config.model_validate(small)


def _grown(config: Config) -> Config:
    """The same experiments beyond the papers' size, under their own folder: more instances, and repeats enough that
    intervals include the draw of the design."""
    large = config.model_dump(exclude_defaults=True)
    large["results"] = f"{config.results}/beyond"
    for name, experiment in large["experiments"].items():
        full = config.experiments[name]
        if not (full.instances.texts or full.instances.near):
            more = {"count": 3 * full.instances.count, "fewer_ok": True}
            experiment["instances"] = {**experiment.get("instances", {}), **more}
        experiment["repeats"] = max(3, full.repeats)
    return Config.model_validate(large)


SCALES = {"smoke": _shrunk, "paper": lambda config: config, "beyond": _grown}
