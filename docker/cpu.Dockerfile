# Ray, torch for CPUs and the libraries of the workloads. See README.md beside this file.
ARG BASE_IMAGE=rayproject/ray:2.60.0-py311
FROM ${BASE_IMAGE}

# PyTorch's own index: PyPI has no build without CUDA for Linux on x86_64.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# The secrets are optional: pip's configuration, and certificates that it may name.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    --mount=type=secret,id=certificates,target=/run/secrets/certificates.pem,mode=0444 \
    --mount=type=bind,source=requirements,target=/requirements \
    pip install --no-cache-dir --no-deps --index-url "${TORCH_INDEX}" \
        --requirement /requirements/torch.txt
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    --mount=type=secret,id=certificates,target=/run/secrets/certificates.pem,mode=0444 \
    --mount=type=bind,source=requirements,target=/requirements \
    pip install --no-cache-dir --require-hashes --requirement /requirements/libraries.txt
