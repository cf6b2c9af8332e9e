"""Work for the tests of the explorer's queue: what real work may do, in milliseconds."""

import os
import time

from sgdlimit.errors import reject


def echo(query, tell):
    tell(b'{"said": "' + query.encode() + b'"}')


def sleep(query, tell):
    """For so many seconds, in small pieces: it can be stopped."""
    tell(b'{"begun": true}')
    until = time.monotonic() + float(query)
    while time.monotonic() < until:
        time.sleep(0.01)
    tell(b'{"slept": true}')


def die(query, tell):
    os._exit(9)


def stream(query, tell):
    for i in range(int(query)):
        tell(b"%d" % i)
    tell(b"a file", "numbers.csv")


def raises(query, tell):
    raise ZeroDivisionError("by hand")


def refuses(query, tell):
    raise reject("tau", 3, "it must be smaller")


def count(query, tell):
    """How often this process was asked."""
    global _asked
    _asked += 1
    tell(b"%d" % _asked)


_asked = 0
KINDS = {f.__name__: f for f in (echo, sleep, die, stream, raises, refuses, count)}
