"""What the head and the workers have in common as Azure machines."""

from pulumi_azure_native import compute

from sunspot.targets.azure.plan import Machine

ADMIN_USER = "sunspot"

# Canonical's Ubuntu 24.04, generation 2: H100 and A100 sizes take no other.
IMAGE = compute.ImageReferenceArgs(
    publisher="Canonical", offer="ubuntu-24_04-lts", sku="server", version="latest"
)


def security_profile(machine: Machine) -> compute.SecurityProfileArgs:
    """Trusted launch, with secure boot where the machine's driver is signed."""
    return compute.SecurityProfileArgs(
        security_type=compute.SecurityTypes.TRUSTED_LAUNCH,
        uefi_settings=compute.UefiSettingsArgs(
            secure_boot_enabled=machine.secure_boot, v_tpm_enabled=True
        ),
    )


def linux(ssh_public_key: str) -> compute.LinuxConfigurationArgs:
    """A login by SSH key alone."""
    return compute.LinuxConfigurationArgs(
        disable_password_authentication=True,
        ssh=compute.SshConfigurationArgs(
            public_keys=[
                compute.SshPublicKeyArgs(
                    path=f"/home/{ADMIN_USER}/.ssh/authorized_keys", key_data=ssh_public_key
                )
            ]
        ),
    )


def diagnostics() -> compute.DiagnosticsProfileArgs:
    """The serial console's log, kept by Azure without a storage account of ours."""
    return compute.DiagnosticsProfileArgs(
        boot_diagnostics=compute.BootDiagnosticsArgs(enabled=True)
    )
