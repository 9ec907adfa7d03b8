"""A configuration to begin with for a file of prompts and the folder of a language model."""

import json
from pathlib import Path

import numpy as np

from shapeline.datasets import folders
from shapeline.errors import ShapelineError
from shapeline.generation.prompt_files import PromptRow, check_parts, read_prompts
from shapeline.generation.prompts import build_prompt

MAX_EXACT = 8  # parts of a prompt up to which exact values are affordable
FEW = 2  # parts of a prompt, with fewer it is cut into words


def is_prompts(path: Path, model: str | None) -> bool:
    """Whether a file holds prompts: it is .jsonl, or a CSV beside a folder of a language model."""
    suffix = path.suffix.lower()
    return suffix == ".jsonl" or (suffix == ".csv" and model is not None and _generates(model))


def _generates(model: str) -> bool:
    try:
        folders.check_generator(model)
    except (ShapelineError, OSError):
        return False
    return True


def write_prompts(path: Path, model: str | None, name: str) -> str:
    """Return the configuration of an experiment on prompts. Raises ShapelineError for what is wrong with the file."""
    rows = read_prompts(path)
    if model is None:
        raise ShapelineError(f"{path} holds prompts; add --model path/to/folder of a language model")
    folder = str(Path(model).resolve())
    folders.check_generator(folder)
    kind = _kind(rows)
    check_parts(rows, kind)
    counts = np.array([build_prompt(row.question, row.context, kind, None, True).d for row in rows])
    exact = bool((counts <= MAX_EXACT).mean() >= 0.5)
    methods = [
        *(["exact: {method: shapley}    # exact Shapley values, from all 2^parts coalitions"] * exact),
        "gp_shapley: {method: gp_shapley}    # Shapley values by a Gaussian process",
        "kernel_shap: {method: kernel_shap}",
        "context_cite: {method: context_cite}    # a lasso on random ablations",
        "leave_one_out: {method: occlusion}    # control: removes one part at a time",
        "random: {method: random}    # control: random scores",
    ]
    metrics = [*(["error: {reference: exact}"] * exact), "prompts: {}", "cost: {}"]
    lines = [
        f"# Explanations of {name}, merged over config.yaml. Every key: docs/configuration.md. Run: shapeline run, or",
        f"# snakemake {name} --cores all --configfile shapeline.yaml",
        f"run: [{name}]",
        "datasets:",
        f"  {name}: {{source: prompts, path: {json.dumps(str(path.resolve()))}}}",
        "models:",
        f"  {name}: {{source: {json.dumps(folder)}, task: generation, max_tokens: 64}}    # of its own answer",
        "experiments:",
        f"  {name}:",
        f"    model: {name}",
        f"    dataset: {name}",
        f"    features: {{kind: {kind}}}    # parts of a prompt: sentence, passage, word or message",
        f"    instances: {{count: {min(100, len(rows))}}}    # the first prompts of the file",
        "    budget: 4    # evaluations of a sampled method per part",
        "    methods:",
        *(f"      {line}" for line in methods),
        f"    metrics: {{{', '.join(metrics)}}}    # prompts: deletion, prediction, citation of support",
    ]
    return "\n".join(lines) + "\n"


def _kind(rows: list[PromptRow]) -> str:
    """Return the coarsest parts of which each prompt has two or more."""
    for kind in ("sentence", "word"):
        if all(build_prompt(row.question, row.context, kind, None, True).d >= FEW for row in rows):
            return kind
    return "word"
