# The image of a team's deployment (compose.yaml): Prefect server, worker of our flows, nodes of Ray. Debian and the Python package index
# are all that it is made of.
#   docker build -t headrace-worker:1 -f docker/worker.Dockerfile .
# BASE: any Debian with Python 3.11 to 3.13 in its packages. EXTRAS: those of pyproject.toml. Without a GPU,
# --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu leaves CUDA out.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS install
ARG EXTRAS=train,ray,s3,otel
ARG TORCH_INDEX=
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv
WORKDIR /src
COPY . .
RUN python3 -m venv /opt/headrace \
    && /opt/headrace/bin/python -m pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--extra-index-url ${TORCH_INDEX}} ".[${EXTRAS}]"

FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home headrace && install -d -o headrace /headrace /headrace/runs /headrace/.prefect /headrace/.prefect/workers
COPY --from=install /opt/headrace /opt/headrace
COPY prefect.yaml automations.yaml /headrace/
COPY configs /headrace/configs
ENV PATH=/opt/headrace/bin:$PATH DO_NOT_TRACK=1 RAY_USAGE_STATS_ENABLED=0 PREFECT_SERVER_ANALYTICS_ENABLED=false
USER headrace
WORKDIR /headrace
RUN headrace doctor
