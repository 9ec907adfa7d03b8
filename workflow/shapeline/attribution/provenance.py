"""The metadata of a score file on its origin."""

import shutil
import subprocess
from dataclasses import asdict

import shapeline
from shapeline.attribution.context import ExplanationContext, parse
from shapeline.methods import shapiq_process
from shapeline.seeds import digest
from shapeline.versions import list_imported, version

# What `seconds` leave out, by timing; both end when the numbers are on the host, so that the device has finished.
EXCLUDED = {
    "batch": "loading, calibration, cutting superpixels, what else the machine did, one warm-up call of the model and "
    "one making and reading of a design (of a peer, one whole warm-up explanation); a batch's time is shared out over "
    "its instances",
    "per_instance": "loading, calibration, cutting superpixels, what else the machine did and one whole warm-up "
    "explanation; instances are explained one at a time",
}


def provenance(context: ExplanationContext, settings: dict, device: str) -> dict:
    """Return the metadata of a score file on its origin; null for entries that need a model."""
    requested, framework = parse(settings), context.model and context.model.framework
    peer, elsewhere = requested.method.method.package, requested.method.arguments.get("python")
    release = shapiq_process.read_version(elsewhere) if elsewhere else peer and version(peer)
    rows = context.reference and context.reference.rows
    git = shutil.which("git")
    commit = subprocess.run([git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() if git else ""
    return {
        "settings": settings,
        "settings_digest": digest(settings),
        "method": requested.method.name,
        "parameters": settings["method"],
        "features": _describe_features(context),
        "reference": requested.game.reference if framework else None,
        "reference_rows": 1 if rows is None else len(rows),
        "value": requested.game.value if framework else None,
        "classes": context.dataset.card.get("classes", []) if context.dataset else [],
        "seed": requested.game.seed,
        "timing": requested.timing,
        "seconds_exclude": EXCLUDED[requested.timing],
        "spread_from": requested.method.features,  # the method's own features, of which each cell has a share
        "versions": {**list_imported(), **({peer: release} if peer else {}), "shapeline": shapeline.__version__},
        "framework": framework,
        "form": asdict(context.backend) if context.backend else None,
        "device": device,
        "git_commit": commit or None,
    }


def _describe_features(context: ExplanationContext) -> dict:
    """Return kind, shape and names of the features; shape null if it differs between instances."""
    if context.features is None:
        kind = context.feature_settings
        return {"kind": kind if isinstance(kind, str) else kind["kind"], "shape": None, "names": []}
    return {"kind": context.features.kind, "shape": list(context.features.shape), "names": list(context.features.names)}
