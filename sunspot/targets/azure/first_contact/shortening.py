"""Takes out of a text what names a user, an account or a machine, so that it can be sent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_GUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2})?\b")
_ADDRESS_6 = re.compile(
    r"(?<![\w:])(?=[0-9a-f:]*::|(?:[0-9a-f]{1,4}:){7})[0-9a-f:]{6,}(?![\w:])", re.IGNORECASE
)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_KEY = re.compile(r"\b(?:ssh-(?:ed25519|rsa) )?(?:AAAA|eyJ)[\w+/=.-]{20,}")
# Names that Pulumi made unique, or that are unique in the world.
_HOST = re.compile(
    r"[a-z0-9-]+(\.(?:azurecr\.io|vault\.azure\.net|(?:blob|dfs)\.core\.windows\.net"
    r"|[a-z0-9]+\.cloudapp\.azure\.com))",
    re.IGNORECASE,
)
_RESOURCE = re.compile(
    r"(/(?:resourceGroups|storageAccounts|vaults|registries|virtualNetworks|subnets|galleries"
    r"|images)/)"
    r"(?!sunspot-first-contact\b)[^/\s'\",)]+",
    re.IGNORECASE,
)

_TENANT = re.compile(r"[\w-]+(\.onmicrosoft\.com)", re.IGNORECASE)
_HOME = re.compile(r"(?<![\w/.])/(?:home|Users)/[^/\s'\":;,)]+")
# A text is cut where it is too long: what is left of an id is not known for one.
_CUT = re.compile(r"\S+\.\.\.(?=\s|$)")

_RULES = (
    (_CUT, "..."),
    (_HOME, "~"),
    (_MAIL, "<person>"),
    (_KEY, "<key>"),
    (_GUID, "<id>"),
    (_ADDRESS, "<address>"),
    (_ADDRESS_6, "<address>"),
    (_HOST, r"<name>\1"),
    (_TENANT, r"<name>\1"),
    (_RESOURCE, r"\1<name>"),
)


def shortened(text: str, names: Sequence[str] = (), folders: Sequence[Path] = ()) -> str:
    """The text without them.

    Args:
        text: one line.
        names: words that are left out too, such as the stack's owner.
        folders: folders that are left out, besides the user's own.
    """
    for folder, instead in (*((one, "<folder>") for one in folders), (Path.home(), "~")):
        if folder != Path(folder.anchor):  # of a user without a home it is "/"
            text = re.sub(rf"{re.escape(str(folder))}(?![\w.-])", instead, text)
    for rule, instead in _RULES:
        text = rule.sub(instead, text)
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<name>", text)
    return text
