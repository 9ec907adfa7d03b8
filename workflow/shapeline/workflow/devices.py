"""Which device a job takes: the first free GPU through a lock on this machine, or the CPU."""

import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from filelock import FileLock, Timeout

from shapeline.errors import ShapelineError

log = logging.getLogger("shapeline")


_held: list[FileLock] = []  # device locks live as long as the process; the kernel frees them when it dies


def visible_devices() -> list[str]:
    """Return the GPUs of this job: of CUDA_VISIBLE_DEVICES, else of nvidia-smi; a split GPU counts as its parts."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        names = (name.strip() for name in os.environ["CUDA_VISIBLE_DEVICES"].split(","))
        return [name for name in names if name not in ("", "-1", "NoDevFiles")]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    gpus: list[tuple[str, list[str]]] = []  # each with its parts
    for name in re.findall(r"UUID: ([\w/-]+)\)", listed.stdout if listed.returncode == 0 else ""):
        if name.startswith("MIG-") and gpus:
            gpus[-1][1].append(name)
        else:
            gpus.append((name, []))
    return [name for gpu, parts in gpus for name in parts or [gpu]]


def acquire_device(gpus: int, required: bool = False, jobs_per_gpu: int = 1) -> str:
    """Take one of a GPU's `jobs_per_gpu` slots through a lock on a node-local file, before a framework is imported.

    Snakemake counts GPUs but never picks one; Slurm does. Raises ShapelineError where a GPU is required and none is
    there.
    """
    devices = visible_devices() if gpus else []
    if required and not devices:
        why = "no GPU is visible" if gpus else "--resources gpu=0 leaves this job none"
        raise ShapelineError(f"device: cuda, but {why}; set device: auto to fall back to the CPU")
    if not devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        log.info("no GPU is visible: running on the CPU" if gpus else "running on the CPU")
        return "cpu"
    if "SLURM_JOB_ID" in os.environ:
        log.info("running on GPU %s, given by Slurm", ",".join(devices))
        return "cuda"
    reported = False
    while True:
        for slot, name in [(slot, name) for slot in range(jobs_per_gpu) for name in devices]:
            file = f"shapeline-gpu-{re.sub('[^A-Za-z0-9-]', '_', name)}-{slot}.lock"  # a MIG name may hold slashes
            lock = FileLock(Path(tempfile.gettempdir()) / file, mode=0o666)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            _held.append(lock)
            os.environ["CUDA_VISIBLE_DEVICES"] = name
            log.info("running on GPU %s", name)
            return "cuda"
        if not reported:
            log.info("waiting for one of %d GPU(s)", len(devices))
            reported = True
        time.sleep(1)


def usable_device(framework: str, required: bool = False) -> str:
    """Import the framework; return "cuda" where it sees the GPU of this job, else release that and return "cpu"."""
    if framework == "tensorflow":
        from shapeline.models.tensorflow_setup import tf

        sees = bool(tf.config.list_physical_devices("GPU"))
    else:
        import torch

        sees = torch.cuda.is_available()
    if sees:
        return "cuda"
    name = "tensorflow" if framework == "tensorflow" else "torch"
    problem = f"{name} cannot use the GPU (a build for the CPU, or an unfit driver)"
    if required:
        raise ShapelineError(f"device: cuda, but {problem}; set device: auto to fall back to the CPU")
    log.warning("%s: running on the CPU", problem)
    while _held:
        _held.pop().release()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return "cpu"
