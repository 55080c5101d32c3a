"""Ray's strategy for Lightning, on clusters of one machine too, where GPUs are only numbers."""

import torch
from ray.train.lightning import RayDDPStrategy


class DdpStrategy(RayDDPStrategy):
    """RayDDPStrategy, which takes a GPU that Ray counts for one that is there (Ray 2.60)."""

    @property
    def root_device(self) -> torch.device:
        """The worker's GPU, or the CPU where the machine has none."""
        return super().root_device if torch.cuda.is_available() else torch.device("cpu")
