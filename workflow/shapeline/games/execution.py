"""The form in which a model is run: its name, rows a call, and how far it may differ from the plain model."""

from dataclasses import dataclass

from shapeline.errors import ShapelineError

TOLERANCE = 1e-5  # largest difference in log-probability that a form may show against the plain model
BFLOAT16_TOLERANCE = 0.1  # the same where an experiment asks for bfloat16, whose numbers have three digits
# How many times as slow as the fastest "onnx" may be and is taken all the same: its jobs start without a framework, and
# where two forms are as fast as each other the choice, and with it the last bits of every value, would be chance.
GRAPH_WORTH = 1.1
CALIBRATION_SECONDS = 3.0  # after which no other candidate is tried; a small model on a quiet machine takes under one


@dataclass(frozen=True)
class ExecutionBackend:
    """How a model is run: its form, rows a call, measured rows/s (0: not measured), largest difference to plain.

    An evaluation with M > 1 reference rows takes M rows. `difference` is in log-probability, on masked rows.
    """

    name: str = "plain"
    batch: int = 256
    rate: float = 0.0
    difference: float = 0.0


class FormRefused(ShapelineError):
    """A form that this model cannot take; the calibration goes on without it."""
