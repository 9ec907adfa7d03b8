"""Convert the initial weights of a training to safetensors."""

from pathlib import Path

from shapeline.models import torch_training
from shapeline.workflow import job_environment

job_environment.start(snakemake)
torch_training.convert(Path(snakemake.input.raw[0]), Path(snakemake.output.start))
