"""Keep the weights that a training starts from as safetensors."""

from pathlib import Path

from shapeline import jobs
from shapeline.models import torch_weights

jobs.start(snakemake)
torch_weights.convert(Path(snakemake.input.raw[0]), Path(snakemake.output.start))
