"""Serve the food model over HTTP: POST a picture and get its class; GET health says how it is.

Pictures that arrive together are classified as one batch. Replicas come and go with the load, on
spot workers; the ingress is on the head only, on its loopback address. It serves until Ctrl-C, or
measures itself with --load. Deployed by `sunspot serve deploy serve:app --working-dir workloads`
it stays. Needs Ray Serve, and torch unless --stand-in is given.
"""

import argparse
import asyncio
import functools
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from _common import (
    Place,
    Progress,
    Result,
    connect,
    here,
    parser,
    positive,
    program,
    refuse,
    say,
    share,
    span,
)
from _http_load import Seen, measure
from ray import cloudpickle

try:
    from ray import serve
    from ray.serve.context import _get_global_client  # nothing public tells the port
    from starlette.requests import Request
    from starlette.responses import JSONResponse
except ImportError as error:
    refuse(
        f"this needs Ray Serve ({error}): pip install 'ray[serve]', or in Sunspot's folder: "
        "make setup-serve"
    )

NAME = "food"
HOST, PORT = "127.0.0.1", 8000
BATCH, BATCH_WAIT_S = 16, 0.01
# Requests that a replica has in work or waiting before another one is started, and the most.
BUSY, FULL = 2 * BATCH, 8 * BATCH
MARKETS = ("spot", "on-demand", "any")
"""Where replicas may run; "any" allows every node."""
CLASSES = 11  # of Food-11
PICTURES = 32  # different ones that --load sends


@dataclass(frozen=True, kw_only=True)
class Args:
    """What is served, and where: what a config of Serve may have as ``args``."""

    min_replicas: int = 1
    max_replicas: int = 4
    market: str = "spot"
    """The market of the workers that replicas run on; one of MARKETS."""
    cpus: float = 1.0
    gpus: float = 0.0
    size: int = 64
    width: float = 1.0
    weights: str | None = None
    stand_in: float | None = None
    """Pictures a second of a stand-in that needs no torch; None means the model."""


# What runs on the nodes


class StandIn:
    """Takes as long as a model of a known rate, and uses no CPU."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def decode(self, body: bytes) -> bytes:
        """Return what came.

        Raises:
            ValueError: If nothing did.
        """
        if not body:
            raise ValueError("not a picture: it is empty")
        return body

    def classify(self, pictures: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return a class for each picture, after as long as the model would take."""
        time.sleep(len(pictures) / self._rate)
        return [{"class": f"class_{sum(p) % CLASSES:02d}", "probability": 1.0} for p in pictures]


@serve.deployment(name="Food", max_ongoing_requests=FULL)
class Food:
    """One replica."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._model = make()
        self._began, self._done = time.time(), 0

    async def __call__(self, request: Request) -> JSONResponse:
        """Classify the picture in a request's body."""
        if request.method == "GET":
            return self._health(request.url.path)
        try:
            picture = await asyncio.to_thread(self._model.decode, await request.body())
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        node, pid = here()
        return JSONResponse({**await self._batched(picture), "node": node, "pid": pid})

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=BATCH_WAIT_S)
    async def _batched(self, pictures: list[Any]) -> list[dict[str, Any]]:
        # In a thread, so that the next batch is received and decoded meanwhile.
        found = await asyncio.to_thread(self._model.classify, pictures)
        self._done += len(pictures)
        return [{**one, "batch": len(pictures)} for one in found]

    def _health(self, path: str) -> JSONResponse:
        if not path.endswith("/health"):
            return JSONResponse({"error": "POST a picture, or GET health"}, status_code=404)
        node, pid = here()
        up = round(time.time() - self._began, 1)
        about = {"node": node, "pid": pid, "seconds": up, "pictures": self._done}
        return JSONResponse({"status": "ok", **about})


def app(args: dict[str, Any]) -> serve.Application:
    """Return the application, with the values of `Args` that are given."""
    return application(Args(**args))


def application(args: Args) -> serve.Application:
    """Return the application.

    Raises:
        ValueError: If the market is none.
    """
    if args.market not in MARKETS:
        raise ValueError(f"market {args.market!r} is none of {', '.join(MARKETS)}")
    where = {} if args.market == "any" else {"label_selector": {"ray.io/market-type": args.market}}
    options = {"num_cpus": args.cpus, "num_gpus": args.gpus, **where}
    scaling = {
        "min_replicas": args.min_replicas,
        "max_replicas": args.max_replicas,
        "target_ongoing_requests": BUSY,
        "upscale_delay_s": 5,
        "downscale_delay_s": 60,
    }
    return Food.options(ray_actor_options=options, autoscaling_config=scaling).bind(_maker(args))


def _maker(args: Args) -> Callable[[], Any]:
    if args.stand_in:
        return functools.partial(StandIn, args.stand_in)
    import _serve_model

    return functools.partial(
        _serve_model.Model,
        size=args.size,
        width=args.width,
        weights=args.weights,
        cpus=args.cpus,
        gpu=args.gpus > 0,
    )


# The program


def pictures(args: Args) -> list[bytes]:
    """Return the bodies of the requests that --load sends."""
    if args.stand_in:
        return [bytes([number, 1]) for number in range(PICTURES)]
    import images
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    found = []
    for number in range(PICTURES):
        body = BytesIO()
        drawn = images.draw(number % len(images.CLASSES), 2 * args.size, random)
        Image.fromarray(drawn).save(body, "JPEG", quality=90)
        found.append(body.getvalue())
    return found


def report(seen: Seen, out: Any) -> None:
    """Print what --load found, and write it to a file if asked."""
    places: list[Place] = [(one["node"], one["pid"]) for one in seen.answers]
    p50, p99 = (1000 * seen.percentile(share) for share in (0.5, 0.99))
    failed = len(seen.failures)
    Result(
        workload="serve",
        places=places,
        seconds=seen.seconds,
        summary=f"{seen.rate:,.0f} requests a second, p50 {p50:.0f} ms, p99 {p99:.0f} ms, "
        f"{failed} failed",
    ).report(
        out,
        requests_per_second=seen.rate,
        p50_ms=p50,
        p99_ms=p99,
        failed=failed,
        failures=sorted(set(seen.failures))[:10],
    )


def _load(args: Args, url: str, clients: int, seconds: float) -> Seen:
    with Progress() as progress:
        return measure(
            url,
            pictures(args),
            clients,
            seconds,
            lambda seen: progress.show(f"{len(seen.answers):,} answers"),
        )


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    default = Args()
    made = parser(__doc__, "python workloads/serve.py --load 20 --clients 32")
    load = "measure for so long, and end"
    made.add_argument("--load", type=positive, metavar="SECONDS", help=load)
    made.add_argument("--clients", type=positive, default=16, metavar="N", help="clients of --load")
    made.add_argument(
        "--replicas", type=span, default=(1, 4), metavar="N|MIN:MAX", help="replicas (default: 1:4)"
    )
    made.add_argument("--market", choices=MARKETS, default="spot", help="workers to run on")
    made.add_argument(
        "--port",
        type=positive,
        default=PORT,
        metavar="N",
        help="port on the head, unless Serve runs",
    )
    cpus, gpus = "CPUs per replica", "GPUs per replica, such as 0.5"
    made.add_argument("--cpus", type=share, default=default.cpus, metavar="X", help=cpus)
    made.add_argument("--gpus", type=share, default=default.gpus, metavar="X", help=gpus)
    size, width = "input size in pixels", "MobileNetV2's width multiplier"
    made.add_argument("--size", type=positive, default=default.size, metavar="N", help=size)
    made.add_argument("--width", type=float, default=default.width, metavar="X", help=width)
    made.add_argument(
        "--weights", metavar="FILE", help="published weights, on every node (default: random ones)"
    )
    made.add_argument(
        "--stand-in", type=positive, metavar="RATE", help="no model: so many pictures a second"
    )
    return made.parse_args(argv)


def asked_for(given: argparse.Namespace) -> Args:
    """Return what the command line asks for."""
    names = ("market", "cpus", "gpus", "size", "width", "weights", "stand_in")
    few, many = given.replicas
    chosen = {name: getattr(given, name) for name in names}
    return Args(min_replicas=few, max_replicas=many, **chosen)


@program
def main(argv: list[str] | None = None) -> None:
    """Serve what the command line asks for."""
    given = _arguments(argv)
    args = asked_for(given)
    if not args.stand_in:
        import _food
        import _serve_model
        import images

        for module in (_serve_model, _food, images):  # other machines lack these files
            cloudpickle.register_pickle_by_value(module)
    connect()
    try:
        serve.start(proxy_location="HeadOnly", http_options={"host": HOST, "port": given.port})
        url = f"http://{HOST}:{_port(given.port)}/{NAME}"
        serve.run(application(args), name=NAME, route_prefix=f"/{NAME}")
        say(f"Serving at {url} on the head; {url}/health says how it is")
        if not given.load:
            signal.pause()
        report(_load(args, url, given.clients, given.load), given.out)
    finally:
        _end()


def _port(asked: int) -> int:
    """Return the port of the ingress: where Serve runs already, `serve.start` changes nothing."""
    client = _get_global_client()
    port = asked if client is None else client.http_config.port
    if port != asked:
        say(f"Serve runs already, and its port is {port}: --port {asked} is not used")
    return port


def _end() -> None:
    """End Serve, or only this application if there are others."""
    if serve.status().applications.keys() - {NAME}:
        serve.delete(NAME)
    else:
        serve.shutdown()


if __name__ == "__main__":
    main()
