"""What the head and the workers have in common as Azure machines."""

from pulumi_azure_native import compute

from sunspot.targets.azure.machine import Machine
from sunspot.targets.azure.vm_images import UBUNTU, VmImage

ADMIN_USER = "sunspot"

# Ubuntu 24.04 as well, with AMD's driver, which Canonical's lacks (github.com/Azure/azhpc-images).
_WITH_ROCM = ("microsoft-dsvm", "ubuntu-hpc", "2404-rocm")


def system_image(machine: Machine) -> compute.ImageReferenceArgs:
    """The image of the machine's disk, with the drivers that are not installed at boot."""
    if machine.vm_image is not None:
        return _of_the_stack(machine.vm_image)
    publisher, offer, sku = _WITH_ROCM if machine.driver == "rocm" else UBUNTU
    return compute.ImageReferenceArgs(publisher=publisher, offer=offer, sku=sku, version="latest")


def _of_the_stack(image: VmImage) -> compute.ImageReferenceArgs:
    if image.marketplace is None:
        return compute.ImageReferenceArgs(id=image.text)
    publisher, offer, sku, version = image.marketplace
    return compute.ImageReferenceArgs(publisher=publisher, offer=offer, sku=sku, version=version)


def security_profile(machine: Machine) -> compute.SecurityProfileArgs:
    """Trusted launch, with secure boot where the machine's driver is signed."""
    return compute.SecurityProfileArgs(
        security_type=compute.SecurityTypes.TRUSTED_LAUNCH,
        uefi_settings=compute.UefiSettingsArgs(
            secure_boot_enabled=machine.secure_boot, v_tpm_enabled=True
        ),
    )


def linux(ssh_public_key: str) -> compute.LinuxConfigurationArgs:
    """Login by SSH key only."""
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
