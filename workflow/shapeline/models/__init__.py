"""Models: build by name, wrap custom ones, save and load without pickle. Frameworks are imported only when used."""

from shapeline.lazy import export_lazily

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "architectures": "ARCHITECTURES FRAMEWORKS build for_dataset",
        "adapters": "KINDS wrap",
        "classifier": "Classifier",
        "storage": "load save start_from",
    },
)
