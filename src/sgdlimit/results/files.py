"""Files that appear whole or not at all: what can be written is known before the work, what was there stays.

A file is written beside its place under a name of its own, flushed to the disk, and renamed. Killed at any moment this
leaves the old file or the new one, and at worst a `.part` file, which the next one to write there removes.
"""

import contextlib
import errno
import hashlib
import os
import platform
import secrets
import stat
import time
from pathlib import Path

from ..errors import InputError, reject

DAY = 86400.0
"""Seconds after which a `.part` file is nobody's, whatever machine wrote it."""


def source(argument: str, path: object, remedy: str = "") -> Path:
    """A file that can be read."""
    found = _path(argument, path)
    try:
        kind = os.stat(found).st_mode
        if stat.S_ISREG(kind):
            os.close(os.open(found, os.O_RDONLY))
    except FileNotFoundError:
        raise reject(argument, found, f"there is no such file{remedy}") from None
    except (OSError, ValueError) as error:
        raise _refused(argument, found, error) from None
    if not stat.S_ISREG(kind):
        raise reject(argument, found, f"there is no such file: it is {_kind(kind)}{remedy}")
    return found


def destination(argument: str, path: object, overwrite: bool, remedy: str = "say overwrite=True to replace it") -> Path:
    """Where a file will be written, links followed; an InputError says now what would fail later.

    Only ordinary files are written: a pipe or a device cannot be replaced as a whole.
    """
    named = _path(argument, path)
    try:
        there = os.stat(named)
    except FileNotFoundError:
        there = None
    except (OSError, ValueError) as error:
        raise _refused(argument, named, error) from None
    target = Path(os.path.realpath(named))
    if there is not None:
        if not stat.S_ISREG(there.st_mode):
            raise reject(argument, named, f"it is {_kind(there.st_mode)}; name an ordinary file, such as run.nc")
        if not overwrite:
            raise reject(argument, named, f"the file exists; name another, or {remedy}")
    elif not target.parent.is_dir():
        raise reject(argument, named, f"the folder {target.parent} does not exist; create it first")
    try:
        if there is not None:
            os.close(os.open(target, os.O_WRONLY))
        handle, trial = _create(target)
        os.close(handle)
        trial.unlink()
    except OSError as error:
        raise _refused(argument, named, error) from None
    return target


def replace(target: Path, content: bytes, argument: str = "path", settled: bool = True) -> None:
    """Write all of a file, or nothing: on failure what was there before is intact, and the error names the disk.

    Not `settled`, a new file may be gone after a power cut; after anything less it is there.
    """
    _clean(target)
    temporary = None
    try:
        handle, temporary = _create(target)
        with open(handle, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        temporary = None
        if settled:
            _settle(target.parent)
    except OSError as error:
        raise _refused(argument, target, error, len(content)) from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _path(argument: str, path: object) -> Path:
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise reject(argument, repr(path), "it must be the name of a file, such as run.nc")
    return Path(path)


def _kind(mode: int) -> str:
    names = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    return next((name for test, name in names.items() if test(mode)), "a device")


def _refused(argument: str, path: Path, error: Exception, size: int = 0) -> InputError:
    """What the system says about a file, with the folder it is in and what to do."""
    folder, code = path.parent, getattr(error, "errno", None) or 0
    said = getattr(error, "strerror", None) or str(error)
    full = f"the disk of {folder} has no room; make some, or choose another"
    closed = f"this file or the folder {folder} may not be read, written or searched; choose another"
    remedies = {
        errno.ENAMETOOLONG: "choose a shorter name",
        **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), full),
        **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), closed),
    }
    kept = f" ({size} bytes are needed; nothing there was changed)" if size else ""
    return reject(argument, path, f"{said}: {remedies.get(code, 'choose another name or folder')}{kept}")


def _stem(target: Path) -> str:
    """Of all `.part` files for a target: short, however long its name is."""
    return f".sgdlimit-{_digest(target.name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:12]


def _create(target: Path) -> tuple[int, Path]:
    """A new file beside the target that names its writer; its permissions are those of any file of the user's."""
    writer = f"{_digest(platform.node())}-{os.getpid()}-{secrets.token_hex(4)}"
    temporary = target.with_name(f"{_stem(target)}-{writer}.part")
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666), temporary


def _clean(target: Path) -> None:
    """Remove what killed writers of this target left behind."""
    with contextlib.suppress(OSError):
        for stray in target.parent.glob(f"{_stem(target)}-*.part"):
            if _abandoned(stray):
                stray.unlink(missing_ok=True)


def _abandoned(stray: Path) -> bool:
    """Whether the process that was writing it is gone."""
    machine, _, process = stray.name.removesuffix(".part").rpartition("-")[0].rpartition("-")
    if os.name == "posix" and machine.endswith(_digest(platform.node())) and process.isdecimal():
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            pass
    return time.time() - stray.stat().st_mtime > DAY


def _settle(folder: Path) -> None:
    """Have the disk remember the new name, where it can be told."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
