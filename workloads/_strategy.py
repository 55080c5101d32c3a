"""Ray's strategy for Lightning, for one worker too, and where GPUs are only numbers."""

import torch
from ray.train.lightning import RayDDPStrategy


class DdpStrategy(RayDDPStrategy):
    """RayDDPStrategy, which takes a GPU that Ray counts for one that is there (Ray 2.60).

    A worker on its own trains the model as it is: there is nobody to agree with.
    """

    def configure_ddp(self) -> None:
        """Wrap the model in torch's DistributedDataParallel if there is more than one worker."""
        # It broadcasts BatchNorm's statistics before each batch and walks the graph after it, also
        # where there is nobody to send them to.
        if self.world_size > 1:
            super().configure_ddp()

    @property
    def root_device(self) -> torch.device:
        """The worker's GPU, or the CPU where the machine has none."""
        return super().root_device if torch.cuda.is_available() else torch.device("cpu")
