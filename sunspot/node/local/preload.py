"""What Ray's workers import first on clusters of this machine that have GPUs."""

from sunspot.node.local import logical_gpus

logical_gpus.install()
