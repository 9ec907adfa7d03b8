"""Frameworks whose models answer a hierarchy's coalitions on the device: module by name, so that a job imports one."""

ON_DEVICE = dict.fromkeys(("torch", "function"), "shapeline.hierarchy.torch_evaluator")
