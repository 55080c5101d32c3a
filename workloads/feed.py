"""Is the GPU slow, or the CPUs that feed it? Measure both and say which VM size is the better buy.

Loader processes decode and crop pictures; a MobileNetV2 processes them. Each is measured by itself
and both together, with 1, 2, ... CPUs of one node. Beyond the point where the loaders' line crosses
the model's, another CPU makes nothing faster. Without a GPU the model runs on one CPU thread beside
the loaders; or --model-images-per-second gives the rate of a GPU, and a stand-in takes exactly that
long and uses no CPU. Needs torch and torchvision.
"""

import argparse
import importlib.util
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import _bench
import images
import ray
from _bench import Bench, Rates, Setup
from _chart import Chart, Line, Point
from _common import (
    Progress,
    Result,
    connect,
    count,
    parser,
    positive,
    program,
    refuse,
    say,
    writable,
)
from _sizes import MARKETS, Size, SizeError, sizes
from ray import cloudpickle

for module in (images, _bench):  # other machines lack these files
    cloudpickle.register_pickle_by_value(module)

CATALOG = Path(__file__).resolve().parent.parent / "sunspot" / "catalog" / "sizes.csv"
T4_SIZES = "Standard_NC4as_T4_v3,Standard_NC8as_T4_v3"
CROP = 224  # pixels; the input size of the published MobileNetV2
BATCH = 16
SECONDS = 1.5
EACH_UP_TO = 8  # CPUs; above that only every other power of two is measured
FED = 0.95  # of the model's own rate: from here on the CPUs are not the bottleneck


# What the measurements mean


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """The number of CPUs that load as fast as the model processes."""

    cpus: float
    measured: bool
    """False if it lies beyond the last measurement, on a straight line through it."""


def crossing(points: Sequence[Point], model: float) -> Crossing:
    """Return where the loaders' line, which starts at 0 CPUs, first reaches the model's rate."""
    left = (0.0, 0.0)
    for right in points:
        if right[1] >= model:
            share = (model - left[1]) / (right[1] - left[1])
            return Crossing(cpus=left[0] + share * (right[0] - left[0]), measured=True)
        left = right
    return Crossing(cpus=left[0] * model / left[1], measured=False)


def rate_with(cpus: float, points: Sequence[Point], model: float) -> float:
    """Return the images a second that a VM with this many CPUs processes.

    Between two measurements it is interpolated. Beyond the last one it lies on a straight line
    through it, and is never faster than the model by itself.
    """
    left = (0.0, 0.0)
    for right in points:
        if cpus <= right[0]:
            share = (cpus - left[0]) / (right[0] - left[0])
            return left[1] + share * (right[1] - left[1])
        left = right
    return min(max(model, left[1]), left[1] * cpus / left[0])


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A VM size, the images a second of each of its GPUs, and the price of a million images."""

    size: Size
    rate: float
    usd_a_million: float
    measured: bool


def offers(chosen: Sequence[Size], points: Sequence[Point], model: float) -> list[Offer]:
    """Return the sizes, the cheapest per image first."""
    made = []
    for size in chosen:
        rate = rate_with(size.cpus_a_gpu, points, model)
        cost, measured = size.usd_a_million(rate), size.cpus_a_gpu <= points[-1][0]
        made.append(Offer(size=size, rate=rate, usd_a_million=cost, measured=measured))
    return sorted(made, key=lambda offer: offer.usd_a_million)


# The program


def steps(most: int) -> list[int]:
    """Return the numbers of CPUs to measure: each up to eight, then 12, 16, 24, 32, ..."""
    few = list(range(1, min(most, EACH_UP_TO) + 1))
    return few + [n for p in range(3, 10) for n in (3 << p >> 1, 2 << p) if EACH_UP_TO < n <= most]


def table(rates: Sequence[Rates], model: float) -> str:
    """Return a table of images a second with a line for each number of CPUs."""
    rows = [f"{'CPUs':>6}{'loaders':>12}{'together':>12}{'model busy':>13}"]
    rows += [
        f"{one.cpus:6}{one.loader:12,.0f}{one.together:12,.0f}{one.together / model:13.0%}"
        for one in rates
    ]
    return "\n".join(rows)


def verdict(rates: Sequence[Rates], model: float, found: Crossing) -> str:
    """Return one sentence: which of the two is slow, and where that changes."""
    last, where = rates[-1], "" if found.measured else ", beyond what was measured"
    load, take, cpus = f"{last.loader:,.0f}", f"{model:,.0f}", count(last.cpus, "CPU")
    if last.loader < model * FED:
        verb = "load" if last.cpus > 1 else "loads"
        text = f"The CPUs are slow: {cpus} {verb} {load} images a second; the model takes {take}"
    else:
        text = f"The model is slow: it takes {take} images a second; {cpus} would load {load}"
    return f"{text}. The lines cross at {found.cpus:.1f} CPUs{where}"


def buy(ordered: Sequence[Offer], market: str) -> str:
    """Return what each size gives and costs, and the better buy."""
    rows = [f"{'size':28}{'CPUs':>5}{'USD/h':>8}{'images/s':>10}{'USD/million':>13}"]
    for offer in ordered:
        size = offer.size
        star = "" if offer.measured else "  (beyond what was measured)"
        rows.append(
            f"{size.name:28}{size.vcpus:5}{size.price:8.3f}"
            f"{offer.rate * max(1, size.gpus):10,.0f}{offer.usd_a_million:13.3g}{star}"
        )
    if len(ordered) > 1:
        best, next_best = ordered[:2]
        saved = 1 - best.usd_a_million / next_best.usd_a_million
        rows.append(
            f"{best.size.name} is the better buy: {saved:.0%} cheaper per image than "
            f"{next_best.size.name} ({market} prices)"
        )
    return "\n".join(rows)


def picture(rates: Sequence[Rates], model: float, found: Crossing, name: str) -> Chart:
    """Return the chart of the three lines, marked where two of them cross."""
    right = max(rates[-1].cpus, found.cpus)
    lines = [
        Line(label="loaders alone", points=[(one.cpus, one.loader) for one in rates]),
        Line(label=f"model: {name[:16]}", points=[(0, model), (right, model)], dashed=True),
        Line(label="together", points=[(one.cpus, one.together) for one in rates]),
    ]
    if not found.measured:
        beyond = [(rates[-1].cpus, rates[-1].loader), (found.cpus, model)]
        lines.append(Line(label="loaders, not measured", points=beyond, faint=True, dashed=True))
    return Chart(
        title="What is slow: the model, or the CPUs that feed it?",
        x_label="CPUs that load",
        y_label="images a second",
        lines=lines,
        mark=(found.cpus, f"cross at {found.cpus:.1f}"),
    )


def rate(text: str) -> float:
    """Return a number above 0, for argparse."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _arguments(argv: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    example = "python workloads/feed.py --cpus 4 --model-images-per-second 1500 --picture feed.svg"
    made = parser(__doc__, example)
    made.add_argument(
        "--cpus",
        type=positive,
        metavar="N",
        help="most CPUs to measure with (default: all of a node)",
    )
    made.add_argument(
        "--model-images-per-second",
        type=rate,
        metavar="X",
        help="rate of a GPU to simulate (default: measure)",
    )
    made.add_argument("--train", action="store_true", help="train the model on the images as well")
    made.add_argument("--batch", type=positive, default=BATCH, metavar="N", help="images per batch")
    made.add_argument(
        "--crop", type=positive, default=CROP, metavar="N", help="size of the crops in pixels"
    )
    made.add_argument(
        "--seconds", type=rate, default=SECONDS, metavar="X", help="seconds per measurement"
    )
    made.add_argument(
        "--data", metavar="FOLDER", help="folder like Food-11, on the node (default: generated)"
    )
    made.add_argument(
        "--sizes",
        default=T4_SIZES,
        metavar="A,B",
        help="VM sizes to compare, or NAME=VCPUS:USD, USD per hour",
    )
    made.add_argument(
        "--catalog",
        type=Path,
        default=CATALOG,
        metavar="FILE",
        help="CSV file of sizes and prices (default: Sunspot's)",
    )
    made.add_argument("--market", choices=MARKETS, default="spot", help="market whose prices count")
    made.add_argument("--picture", type=writable, metavar="FILE", help="draw the lines as SVG")
    return made, made.parse_args(argv)


def _node(wanted: int | None) -> tuple[int, float]:
    """Return the CPUs and GPUs to ask for: the largest node's, preferably one with a GPU."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    best = max(nodes, key=lambda has: (has.get("GPU", 0) > 0, has.get("CPU", 0)))
    cpus = int(best.get("CPU", 0))
    if wanted is not None and wanted > cpus:
        which = "node with a GPU" if best.get("GPU", 0) else "node"
        refuse(f"the largest {which} has {cpus} CPUs, not {wanted}. Lower --cpus")
    return wanted or cpus, min(1.0, best.get("GPU", 0))


def measure(bench: Any, most: int) -> tuple[list[Rates], float]:
    """Return the rates with each number of CPUs, and the model's own."""
    with Progress() as progress:

        def get(ref: Any, what: str) -> Any:
            while not ray.wait([ref], timeout=0.5)[0]:
                progress.show(what)
            return ray.get(ref)

        model = get(bench.model_rate.remote(), "the model alone")
        numbers = steps(most)
        rates = [get(bench.rates.remote(n), f"with {n} of {numbers[-1]} CPUs") for n in numbers]
    return rates, model


@program
def main(argv: list[str] | None = None) -> None:
    """Measure what the command line asks for."""
    made, args = _arguments(argv)
    for name in ("torch", "torchvision"):
        if importlib.util.find_spec(name) is None:
            made.error(f"this workload needs {name}: pip install {name}")
    try:
        chosen = sizes(args.sizes, args.catalog, args.market)
        if data := images.asked_for(args.data):
            images.check_dataset(Path(data))
    except (SizeError, images.DataError) as error:
        made.error(str(error))
    connect()
    cpus, gpus = _node(args.cpus)
    setup = Setup(
        data=data,
        batch=args.batch,
        crop=args.crop,
        seconds=args.seconds,
        rate=args.model_images_per_second,
        train=args.train,
    )
    bench: Any = ray.remote(num_cpus=cpus, num_gpus=gpus)(Bench).remote(setup)
    say(f"Waiting for a node with {cpus} free CPUs" + (" and a GPU" if gpus else ""))
    place, cores, name, on_cpu = ray.get(bench.about.remote())
    began = time.perf_counter()
    rates, model = measure(bench, min(cpus, cores))
    seconds = time.perf_counter() - began
    ray.kill(bench)  # its process is pinned to some of the CPUs
    points = [(one.cpus, one.together) for one in rates]
    found = crossing([(one.cpus, one.loader) for one in rates], model)
    ordered = offers(chosen, points, model)
    say(f"The model: MobileNetV2 on {name}, {model:,.0f} images a second on its own")
    if on_cpu:
        say("No GPU here: the model takes CPU time from the loaders. Give your GPU's rate with")
        say("--model-images-per-second.")
    say(table(rates, model))
    say(buy(ordered, args.market))
    if args.picture:
        picture(rates, model, found, name).write(args.picture)
        say(f"Drawn to {args.picture}")
    Result(
        workload="feed", places=[place], seconds=seconds, summary=verdict(rates, model, found)
    ).report(
        args.out,
        model=name,
        model_on_cpu=on_cpu,
        model_rate=model,
        rates=[asdict(one) for one in rates],
        crossing=asdict(found),
        market=args.market,
        offers=[asdict(offer) for offer in ordered],
    )


if __name__ == "__main__":
    main()
