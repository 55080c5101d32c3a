"""What a stack will be on Azure, without an account, Pulumi's engine or a network connection."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from sunspot import console
from sunspot.catalog import prices
from sunspot.catalog.cost import Costs
from sunspot.catalog.prices import Prices
from sunspot.errors import UsageError
from sunspot.stack import Stack, project_directory
from sunspot.targets.azure import access, ssh_key
from sunspot.targets.azure import plan as azure_plan
from sunspot.targets.azure.costs import costs
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.preview import advice, user_data
from sunspot.targets.azure.preview.output import to_json
from sunspot.targets.azure.preview.text import next_steps, show
from sunspot.targets.azure.settings import DEFAULT_KEY_FILE, AzureSettings
from sunspot.targets.azure.tree import Resource, tree

__all__ = ["USER_DATA", "Preview", "collect", "next_steps", "show", "show_part", "to_json"]

USER_DATA = "user-data"


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A plan, and what follows from it. `target` is where `sunspot up` would run the stack."""

    plan: AzurePlan
    target: str
    resources: Resource
    costs: Costs
    openings: list[access.Opening]
    quotas: list[advice.Quota]
    warnings: list[str]
    notes: list[str]


def collect(stack: Stack, folder: Path | None = None, *, refresh_prices: bool = False) -> Preview:
    """The preview of a stack whose relative paths start in `folder`, by default the project's.

    With `refresh_prices`, Azure is asked for today's prices in the stack's region. The default SSH
    key, which belongs to this machine and not to the stack, may be missing: that is a warning.

    Raises:
        UsageError: the stack is wrong; the message names every problem.
        SunspotError: today's prices cannot be read.
    """
    folder = project_directory() if folder is None else folder
    key_missing = _default_key_is_missing(stack)
    plan = azure_plan.plan(ssh_key.with_some_key(stack) if key_missing else stack, folder)
    return Preview(
        plan=plan,
        target=stack.target,
        resources=tree(plan),
        costs=costs(plan, _todays(plan) if refresh_prices else prices.from_catalog()),
        openings=access.openings(plan),
        quotas=advice.quotas(plan),
        warnings=advice.warnings(plan, key_missing=key_missing),
        notes=advice.notes(plan),
    )


def show_part(preview: Preview, what: str, node: str, *, as_json: bool = False) -> None:
    """Prints only what `--show WHAT NODE` requests, so that it can be redirected into a file.

    Raises:
        UsageError: there is no such part or node.
    """
    if what != USER_DATA:
        raise UsageError(
            f"--show {what!r} is unknown: use {USER_DATA}, such as --show {USER_DATA} head"
        )
    found = user_data.user_data(preview.plan, node)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
        return
    print(found.text, end="")
    console.note(
        f"{found.node_type}: {found.bytes_sent:,} bytes as sent (compressed), Azure accepts "
        f"{found.bytes_allowed:,}. `pulumi up` fills in what is in < >."
    )


def _todays(plan: AzurePlan) -> Prices:
    return prices.ask((size.name for size in plan.sizes), plan.location)


def _default_key_is_missing(stack: Stack) -> bool:
    given = AzureSettings.of(stack).access
    return (
        given.ssh_public_key is None
        and given.ssh_public_key_file == DEFAULT_KEY_FILE
        and not Path(DEFAULT_KEY_FILE).expanduser().exists()
    )
