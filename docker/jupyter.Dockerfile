# JupyterLab on any image that has Ray: BASE_IMAGE may be one of the others.
ARG BASE_IMAGE=rayproject/ray:2.60.0-py311
FROM ${BASE_IMAGE}

# The secrets are optional: pip's configuration, and certificates that it may name.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    --mount=type=secret,id=certificates,target=/run/secrets/certificates.pem,mode=0444 \
    --mount=type=bind,source=requirements,target=/requirements \
    pip install --no-cache-dir --no-deps --require-hashes --requirement /requirements/jupyter.txt

# On the loopback address; it prints its address with a token of its own.
CMD ["jupyter", "lab", "--ip=127.0.0.1", "--no-browser"]
