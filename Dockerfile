# The explorer in a container:
#
#   docker build --tag sgdlimit .
#   docker run --rm --init --publish 127.0.0.1:8000:8000 sgdlimit
#
# and open the address that it prints. The port is published on the loopback of the machine alone; inside the container
# the server has to listen on all addresses, which it does only when told to, and the token in the address is needed all
# the same. To reach it under another name, add: --allow-host that.name
FROM python:3.13-slim

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir ".[explore]" && rm -rf /src

RUN useradd --create-home explorer
USER explorer
WORKDIR /home/explorer
# Compiled programs; mount a volume here to keep them between runs.
ENV SGDLIMIT_CACHE=/home/explorer/.cache/sgdlimit
RUN mkdir -p "$SGDLIMIT_CACHE"

EXPOSE 8000
ENTRYPOINT ["sgdlimit", "explore", "--no-browser", "--host", "0.0.0.0", "--port", "8000"]
