"""The schema of the configuration: python -m shapeline.config > workflow/schemas/config.schema.json."""

import json

from shapeline.config.validation import schema

print(json.dumps(schema(), indent=2))
