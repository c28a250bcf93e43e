# The image of training: Headrace with what its stages need, from the project's wheel. For Ray Jobs (`train.cluster.image`) and for a Docker
# work pool of Prefect's.
#   docker build -t headrace-train:1 -f docker/train.Dockerfile .
# A cluster's jobs need its own Python and Ray: give its image as BASE, e.g. --build-arg BASE=rayproject/ray:2.60.0-py312-gpu. Where no GPU
# is, --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu spares the image CUDA.
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
