"""What Ray's workers import first where a cluster's GPUs are only numbers."""

from sunspot.node.local import logical_gpus

logical_gpus.install()
