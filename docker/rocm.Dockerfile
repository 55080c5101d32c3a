# Ray, torch for AMD GPUs and the libraries of the workloads. See README.md beside this file.
ARG BASE_IMAGE=rayproject/ray:2.60.0-py311
FROM ${BASE_IMAGE}

# A node runs rocminfo before it joins (gpus.sh). Its version is the distribution's.
USER 0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends rocminfo \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
USER 1000

# PyTorch's index for the ROCm of the VM's driver, such as https://download.pytorch.org/whl/rocmX.Y.
ARG TORCH_INDEX

# The secrets are optional: pip's configuration, and certificates that it may name.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    --mount=type=secret,id=certificates,target=/run/secrets/certificates.pem,mode=0444 \
    --mount=type=bind,source=requirements,target=/requirements \
    pip install --no-cache-dir \
        --index-url "${TORCH_INDEX:?name the index: --build-arg TORCH_INDEX=...}" \
        --requirement /requirements/torch.txt
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    --mount=type=secret,id=certificates,target=/run/secrets/certificates.pem,mode=0444 \
    --mount=type=bind,source=requirements,target=/requirements \
    pip install --no-cache-dir --require-hashes --requirement /requirements/libraries.txt
