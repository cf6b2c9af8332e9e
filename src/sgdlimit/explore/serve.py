"""Start the server, say where it is, and end it with all its processes."""

import asyncio
import contextlib
import importlib.util
import signal
import socket
import sys
import webbrowser
from typing import Any

from ..errors import reject, whole
from .pool import WORKERS, Pool
from .security import local, new_token

NEEDED = ("starlette", "uvicorn", "plotly")


def require_extra() -> None:
    """Refuse to start without the packages of the extra."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise reject("explore", f"no {', '.join(missing)} installed", 'run: pip install "sgdlimit[explore]"')


def explore(
    host: str = "127.0.0.1", port: int = 0, *, browser: bool = True, hosts: tuple[str, ...] = (), workers: int = WORKERS
) -> None:
    """Serve until Ctrl-C. port 0: a free one. hosts: names under which it may be asked beside those of the loopback."""
    require_extra()
    port = whole("port", port, least=0, most=65535, why="it must be a port from 0 to 65535; 0 takes a free one")
    workers = whole("workers", workers, least=1, most=64, why="it must be a whole number from 1 to 64")
    listening = _listen(host, port)
    token = new_token()
    number = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else "127.0.0.1" if host in ("0.0.0.0", "") else host
    address = f"http://{shown}:{number}/{token}/"
    try:
        asyncio.run(_serve(listening, token, address, hosts, workers, browser, host))
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on: a browser may be faster than the server's own imports."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(256)
    except (OSError, OverflowError) as error:
        listening.close()
        raise reject("host, port", f"{host}:{port}", f"cannot listen there ({error}); leave --port out") from None
    return listening


async def _serve(
    listening: socket.socket, token: str, address: str, hosts: tuple[str, ...], workers: int, browser: bool, host: str
) -> None:
    pool = Pool(workers)
    pool.warm()  # before anything else is imported: it takes the longest
    import uvicorn

    from .app import make

    config = uvicorn.Config(
        make(token, pool, hosts), log_level="critical", access_log=False, lifespan="on", ws="none", server_header=False,
        date_header=False, limit_concurrency=512, timeout_keep_alive=30, timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=16384, http="h11", loop="asyncio", proxy_headers=False,
    )  # fmt: skip
    server: Any = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # Ctrl-C is an end like any other here
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, setattr, server, "should_exit", True)
    if not local(host):
        words = f"warning: listening on {host}: whoever reaches this machine and knows the address can use it"
        print(words, file=sys.stderr, flush=True)
    print(f"explorer: {address}", flush=True)
    print("Ctrl-C ends it.", flush=True)
    if browser:
        loop.run_in_executor(None, webbrowser.open, address)
    try:
        await server.serve(sockets=[listening])
    finally:
        await pool.stop()
