# The image of a worker of Prefect that starts every flow run in a container of its own (docker/work_pools/): Prefect and its two
# integrations, without Headrace. The runs' own image is docker/worker.Dockerfile.
#   docker build -t headrace-pool-worker:1 -f docker/pool_worker.Dockerfile docker
#   docker run -d -e PREFECT_API_URL=http://prefect:4200/api --network headrace_default -v /var/run/docker.sock:/var/run/docker.sock --group-add GROUP headrace-pool-worker:1
# GROUP: number of the group that owns the socket. On Kubernetes: the same image, with
# `prefect worker start --pool headrace-kubernetes --type kubernetes` as command.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home headrace \
    && python3 -m venv /opt/prefect \
    && /opt/prefect/bin/python -m pip install --no-cache-dir 'fastapi<0.151' \
       prefect==3.8.8 prefect-docker==0.7.4 prefect-kubernetes==0.8.0
ENV PATH=/opt/prefect/bin:$PATH DO_NOT_TRACK=1
USER headrace
RUN python -c "import prefect_docker.worker, prefect_kubernetes.worker"
CMD ["prefect", "worker", "start", "--pool", "headrace-docker", "--type", "docker"]
