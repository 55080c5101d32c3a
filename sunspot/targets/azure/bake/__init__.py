"""Makes a VM image for a stack: `sunspot bake`."""

from sunspot.targets.azure.bake.builder import Builder
from sunspot.targets.azure.bake.recipe import Recipe, recipe

__all__ = ["Builder", "Recipe", "recipe"]
