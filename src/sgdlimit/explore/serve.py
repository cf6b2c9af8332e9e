"""Start the server, say where it is, and end it with all its processes."""

import asyncio
import contextlib
import importlib.util
import ipaddress
import secrets
import signal
import socket
import sys
import webbrowser
from typing import Any

from ..errors import reject, whole
from .pool import Pool

NEEDED = ("starlette", "uvicorn", "plotly")


def explore(host: str = "127.0.0.1", port: int = 0, *, browser: bool = True, hosts: tuple[str, ...] = ()) -> None:
    """Serve until Ctrl-C. port 0: a free one. hosts: names under which it may be asked beside those of the loopback."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise reject("explore", f"no {', '.join(missing)} installed", 'run: pip install "sgdlimit[explore]"')
    port = whole("port", port, least=0, most=65535, why="it must be a port from 0 to 65535; 0 takes a free one")
    six = ":" in host
    family = socket.AF_INET6 if six else socket.AF_INET
    try:  # connections are taken from now on: a browser may be faster than the server's own imports
        listening = socket.create_server((host, port), family=family, backlog=256, dualstack_ipv6=six)
    except (OSError, OverflowError) as error:
        raise reject("host, port", f"{host}:{port}", f"cannot listen there ({error}); leave --port out") from None
    with contextlib.suppress(KeyboardInterrupt), listening:
        asyncio.run(_serve(listening, host, hosts, browser))


def local(host: str) -> bool:
    """Whether an address to listen on is the machine's own."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


async def _serve(listening: socket.socket, host: str, hosts: tuple[str, ...], browser: bool) -> None:
    pool = Pool()
    try:
        pool.warm("curves")  # before anything else is imported: it takes the longest
        import uvicorn

        from .app import make

        token = secrets.token_urlsafe(24)
        config = uvicorn.Config(
            make(token, pool, hosts), log_level="critical", access_log=False, lifespan="on", ws="none",
            server_header=False, date_header=False, limit_concurrency=512, timeout_keep_alive=30,
            timeout_graceful_shutdown=1, h11_max_incomplete_event_size=16384, http="h11", loop="asyncio",
            proxy_headers=False,
        )  # fmt: skip
        server: Any = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # Ctrl-C is an end like any other here
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, setattr, server, "should_exit", True)
        if not local(host):
            words = f"warning: listening on {host}: whoever reaches this machine and knows the address can use it"
            print(words, file=sys.stderr, flush=True)
        shown = f"[{host}]" if ":" in host else "127.0.0.1" if host in ("0.0.0.0", "") else host
        address = f"http://{shown}:{listening.getsockname()[1]}/{token}/"
        print(f"explorer: {address}\nCtrl-C ends it.", flush=True)
        if browser:
            loop.run_in_executor(None, webbrowser.open, address)
        await server.serve(sockets=[listening])
    finally:
        await pool.stop()
