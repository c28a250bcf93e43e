# The image of training: the project's wheel with its training dependencies. For Ray Jobs (`train.cluster.image`) and Docker work pools of
# Prefect.
#   docker build -t headrace-train:1 -f docker/train.Dockerfile .
# Jobs need the Python and Ray of their cluster: set BASE to its image, e.g. --build-arg BASE=rayproject/ray:2.60.0-py312-gpu. Without a
# GPU, --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu leaves CUDA out.
ARG BASE=python:3.12-slim-bookworm

FROM python:3.12-slim-bookworm AS wheel
WORKDIR /src
COPY . .
RUN python -m pip install --no-cache-dir -c constraints.txt build \
    && python -m build --wheel --outdir /wheel

FROM ${BASE}
ARG TORCH_INDEX=
COPY --from=wheel /src/constraints.txt /wheel/headrace-*.whl /tmp/headrace/
RUN python -m pip install --no-cache-dir -c /tmp/headrace/constraints.txt ${TORCH_INDEX:+--extra-index-url ${TORCH_INDEX}} \
    "$(ls /tmp/headrace/headrace-*.whl)[train,ray]" \
    && cd / && headrace doctor
ENV DO_NOT_TRACK=1 RAY_USAGE_STATS_ENABLED=0
