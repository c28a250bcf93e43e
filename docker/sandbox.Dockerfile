# The image of the sandbox: Python's standard library only. The supervisor is passed in at start, so this image changes rarely.
#   docker build -t headrace-sandbox:1 -f docker/sandbox.Dockerfile docker
FROM python:3.12-slim-bookworm
RUN pip uninstall -y pip setuptools wheel 2> /dev/null; rm -rf /root/.cache /var/lib/apt/lists/*
USER 65534:65534
WORKDIR /tmp
