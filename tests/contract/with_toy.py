"""`sunspot` with one more target: the line in the registry that it takes, at run time."""

from sunspot import registry
from sunspot.cli import main

registry.PACKAGES["toy"] = "toy_target"

main()
