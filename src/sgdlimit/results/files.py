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
    found, mode = _found(argument, path)
    if mode is None or not stat.S_ISREG(mode):
        other = "" if mode is None else f": it is {_kind(mode)}"
        raise reject(argument, found, f"there is no such file{other}{remedy}")
    try:
        os.close(os.open(found, os.O_RDONLY))
    except OSError as error:
        raise _refused(argument, found, error) from None
    return found


def destination(argument: str, path: object, overwrite: bool, remedy: str = "say overwrite=True to replace it") -> Path:
    """Where a file will be written, links followed; an InputError says now what would fail later.

    Only ordinary files are written: a pipe or a device cannot be replaced as a whole.
    """
    named, mode = _found(argument, path)
    target = Path(os.path.realpath(named))
    if mode is not None and not stat.S_ISREG(mode):
        raise reject(argument, named, f"it is {_kind(mode)}; name an ordinary file, such as run.nc")
    if mode is not None and not overwrite:
        raise reject(argument, named, f"the file exists; name another, or {remedy}")
    if not target.parent.is_dir():
        raise reject(argument, named, f"the folder {target.parent} does not exist; create it first")
    try:
        if mode is not None:
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
    try:
        handle, temporary = _create(target)
        try:
            with open(handle, "wb") as file:
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        if settled:  # have the disk remember the new name, where it can be told
            with contextlib.suppress(OSError):
                folder = os.open(target.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
    except OSError as error:
        raise _refused(argument, target, error, len(content)) from None


def _found(argument: str, path: object) -> tuple[Path, int | None]:
    """A path, and what kind of thing is there; None: nothing."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise reject(argument, repr(path), "it must be the name of a file, such as run.nc")
    try:
        return Path(path), os.stat(path).st_mode
    except FileNotFoundError:
        return Path(path), None
    except (OSError, ValueError) as error:
        raise _refused(argument, Path(path), error) from None


def _kind(mode: int) -> str:
    names = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")


def _refused(argument: str, path: Path, error: Exception, size: int = 0) -> InputError:
    """What the system says about a file, with the folder it is in and what to do."""
    code, said = getattr(error, "errno", None), getattr(error, "strerror", None) or str(error)
    remedy = "choose another name or folder"
    if code == errno.ENAMETOOLONG:
        remedy = "choose a shorter name"
    elif code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = f"the disk of {path.parent} has no room; make some, or choose another"
    elif code in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = f"this file or the folder {path.parent} may not be read, written or searched; choose another"
    kept = f" ({size} bytes are needed; nothing there was changed)" if size else ""
    return reject(argument, path, f"{said}: {remedy}{kept}")


def _stem(target: Path) -> str:
    """Of all `.part` files for a target: short, however long its name is."""
    return f".sgdlimit-{_digest(target.name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:12]


def _create(target: Path) -> tuple[int, Path]:
    """A new file beside the target that names its writer; its permissions are those of any file of the user's."""
    writer = f"{_digest(platform.node())}-{os.getpid()}-{secrets.token_hex(4)}"
    temporary = target.with_name(f"{_stem(target)}-{writer}.part")
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), temporary


def _clean(target: Path) -> None:
    """Remove what killed writers of this target left behind: of processes that are gone, or that of days ago."""
    with contextlib.suppress(OSError):
        for stray in target.parent.glob(f"{_stem(target)}-*.part"):
            machine, process = stray.name.split("-")[2:4]
            gone = time.time() - stray.stat().st_mtime > DAY
            if machine == _digest(platform.node()):
                try:
                    os.kill(int(process), 0)
                except ProcessLookupError:
                    gone = True
                except (OSError, ValueError, OverflowError):
                    pass
            if gone:
                stray.unlink(missing_ok=True)
