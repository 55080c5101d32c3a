"""Train MobileNetV2 on Food-11 with plain PyTorch Lightning, on one machine.

This script does not use Ray: it stands for the script that you already have. `python` runs it here,
and `sunspot submit --num-gpus 1` runs it unchanged on a node that has a GPU. It does not survive
the loss of its node; train.py is the same training under Ray Train.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import images
import lightning
import torch
from _food import EpochTimes, FoodClassifier, Settings, add_options, asked_for, loader
from lightning.pytorch.callbacks import ModelCheckpoint


def _settings(argv: list[str] | None) -> tuple[Settings, argparse.Namespace]:
    default = Settings()
    made = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        epilog="example:\n  python workloads/plain_train.py --epochs 6 --out plain.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(made)
    made.add_argument(
        "--epochs",
        type=int,
        default=default.epochs,
        metavar="N",
        help="epochs to train (default: %(default)s)",
    )
    made.add_argument(
        "--batch-size",
        type=int,
        default=default.batch_size,
        metavar="N",
        help="pictures per step (default: %(default)s)",
    )
    made.add_argument(
        "--checkpoints",
        metavar="FOLDER",
        default="checkpoints",
        help="folder of the last epoch's checkpoint (default: %(default)s)",
    )
    made.add_argument("--out", type=Path, metavar="FILE", help="write the result as JSON")
    args = made.parse_args(argv)
    if args.epochs < 1:
        made.error(f"--epochs {args.epochs} is less than 1")
    if args.weights and not Path(args.weights).is_file():
        made.error(f"--weights {args.weights}: no such file")
    return asked_for(args, "epochs", "batch_size", "size", "seed"), args


def main(argv: list[str] | None = None) -> None:
    """Train as the command line asks, and evaluate."""
    settings, args = _settings(argv)
    try:
        print(f"Data: {settings.folder()}", flush=True)
    except images.DataError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    lightning.seed_everything(settings.seed, verbose=False)
    model = FoodClassifier(settings)
    times = EpochTimes()
    trainer = lightning.Trainer(
        max_epochs=settings.epochs,
        accelerator="auto",
        devices=1,
        logger=False,
        callbacks=[times, ModelCheckpoint(args.checkpoints)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    began = time.perf_counter()
    trainer.fit(model, loader(settings, "training"), loader(settings, "validation"))
    seconds = time.perf_counter() - began
    [found] = trainer.test(model, loader(settings, "evaluation"), verbose=False)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(
        f"Evaluation accuracy {found['test_accuracy']:.3f} after {settings.epochs} epochs on "
        f"{device}, {seconds / settings.epochs:.2f} s an epoch"
    )
    if args.out:
        result = {
            "workload": "plain_train",
            "accuracy": found["test_accuracy"],
            "loss": found["test_loss"],
            "epochs": settings.epochs,
            "steps": trainer.global_step,
            "seconds": seconds,
            "epoch_seconds": times.seconds,
            "device": device,
        }
        args.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
