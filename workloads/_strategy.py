"""Ray's DDP strategy for Lightning, adapted to a single worker and to logical GPUs."""

import torch
from ray.train.lightning import RayDDPStrategy


class DdpStrategy(RayDDPStrategy):
    """RayDDPStrategy that works with logical GPUs, and does not wrap a single worker's model.

    Ray's own takes every GPU that Ray counts for a real one (Ray 2.60).
    """

    def configure_ddp(self) -> None:
        """Wrap the model in torch's DistributedDataParallel if there is more than one worker."""
        # It broadcasts BatchNorm's statistics before each batch and walks the graph after it, even
        # if there is no other worker.
        if self.world_size > 1:
            super().configure_ddp()

    @property
    def root_device(self) -> torch.device:
        """The worker's GPU, or the CPU where the machine has none."""
        return super().root_device if torch.cuda.is_available() else torch.device("cpu")
