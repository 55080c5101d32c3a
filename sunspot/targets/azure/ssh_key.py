"""The public SSH key that may log in to a stack's machines."""

from __future__ import annotations

from pathlib import Path

from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets.azure.settings import AzureSettings, checked_ssh_public_key


def of(stack: Stack, folder: Path) -> str:
    """The public key that may log in, as the stack file gives it or from the file it names.

    Raises:
        UsageError: there is no such file, or it holds no public key.
    """
    where = "config > sunspot:access > ssh_public_key_file"
    access = AzureSettings.of(stack).access
    if access.ssh_public_key is not None:
        return access.ssh_public_key
    path = folder / Path(access.ssh_public_key_file).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise UsageError(
            f"{where}: no SSH key in {path} ({reason}): make one with `ssh-keygen -t ed25519`, "
            "name its .pub file here, or give the key as ssh_public_key"
        ) from error
    try:
        return checked_ssh_public_key(text)
    except UsageError as error:
        raise UsageError(f"{where}: {path}: {error}") from error


def with_some_key(stack: Stack) -> Stack:
    """The stack with a stand-in for an SSH key that does not exist yet.

    The key is not in the user data and reaches no machine.
    """
    azure = AzureSettings.of(stack)
    access = azure.access.model_copy(update={"ssh_public_key": "ssh-ed25519 (none yet)"})
    return stack.with_settings(azure.model_copy(update={"access": access}))
