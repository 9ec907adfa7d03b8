"""Models: build by name, wrap one's own, save and load without pickle. Frameworks are imported only when used."""

from shapeline.lazy import names_from

__getattr__, __dir__ = names_from(
    __name__,
    {
        "ARCHITECTURES": "architectures",
        "FRAMEWORKS": "architectures",
        "build": "architectures",
        "for_dataset": "architectures",
        "KINDS": "adapters",
        "wrap": "adapters",
        "Classifier": "classifier",
        "load": "storage",
        "save": "storage",
        "start_from": "storage",
    },
)

__all__ = __dir__()
