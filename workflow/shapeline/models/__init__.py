"""Models: build by name, wrap custom ones, save and load without pickle. Frameworks are imported only when used."""

from shapeline.lazy import names_from

__getattr__, __dir__ = names_from(
    __name__,
    {
        "architectures": "ARCHITECTURES FRAMEWORKS build for_dataset",
        "adapters": "KINDS wrap",
        "classifier": "Classifier",
        "storage": "load save start_from",
    },
)
