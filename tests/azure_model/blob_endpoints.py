"""What a storage account's two endpoints answer to a client that may do what it asks.

Both reach the same blobs. Arrow and adlfs read and write through `blob`; Hadoop's driver, and so
Spark, uses `dfs` for every address that begins with abfss://.
"""

from collections.abc import Mapping
from typing import Any

OK, CONFLICT = 200, 409
_UNDELETE = ("deleteRetentionPolicy", "containerDeleteRetentionPolicy")


def status(endpoint: str, account: Mapping[str, Any], services: Mapping[str, Any]) -> int:
    """The HTTP status, from the inputs of the account and of its blob services.

    The 409 has the code EndpointUnsupportedAccountFeatures: "This endpoint does not support
    BlobStorageEvents or SoftDelete" (apache/hadoop#8410, HADOOP-19854). With a hierarchical
    namespace soft delete is supported (Microsoft: soft-delete-blob-overview, feature support).
    """
    soft_delete = any(services.get(name, {}).get("enabled") for name in _UNDELETE)
    flat = not account.get("isHnsEnabled")
    return CONFLICT if endpoint == "dfs" and flat and soft_delete else OK
