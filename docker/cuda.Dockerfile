# Ray, torch for NVIDIA GPUs and the libraries of the workloads. See README.md beside this file.
#
# torch brings CUDA's libraries and the VM the driver: a base image with CUDA would duplicate them.
ARG BASE_IMAGE=rayproject/ray:2.60.0-py311
FROM ${BASE_IMAGE}

# The secrets are optional: pip's configuration, and certificates that it may name.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    --mount=type=secret,id=certificates,target=/run/secrets/certificates.pem,mode=0444 \
    --mount=type=bind,source=requirements,target=/requirements \
    pip install --no-cache-dir --require-hashes --requirement /requirements/cuda.txt
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    --mount=type=secret,id=certificates,target=/run/secrets/certificates.pem,mode=0444 \
    --mount=type=bind,source=requirements,target=/requirements \
    pip install --no-cache-dir --require-hashes --requirement /requirements/libraries.txt
