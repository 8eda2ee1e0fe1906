# SPDX-License-Identifier: MIT
"""HAKMEM, a memory allocator, for Python programs.

    python -m hakmem run script.py          runs a script under it
    python -m hakmem explain script.py      says where the memory of a script is
    python -m hakmem profile script.py      says which code holds it

The functions below speak to the allocator of the process that calls them. They are thread-safe, and raise RuntimeError
in a process that does not run under HAKMEM.
"""
import ctypes
import errno
import json
import pathlib

__all__ = ["LIBRARY", "is_active", "option", "set_option", "start_profile", "stats", "stop_profile", "trim"]

FOLDER = pathlib.Path(__file__).resolve().parent
LIBRARY = FOLDER / "libhakmem.so"
"""The library, as LD_PRELOAD takes it."""

_process = ctypes.CDLL(None, use_errno=True)


def is_active():
    """Does this process run under HAKMEM?"""
    return hasattr(_process, "hak_version")


def _function(name, result, *arguments):
    if not is_active():
        raise RuntimeError("this process does not run under HAKMEM: start it with python -m hakmem run")
    function = getattr(_process, name)
    function.restype, function.argtypes = result, arguments
    return function


def _text(fill):
    """What a function of the library writes, which returns how long the text is."""
    size = 16384
    while True:
        buffer = ctypes.create_string_buffer(size)
        length = fill(buffer, size)
        if length < size:
            return buffer.value.decode()
        size = length + 4096  # the statistics may grow until the next call


def stats():
    """The allocator's statistics as a dict: sizes in bytes, and the counters of docs/options.md."""
    return json.loads(_text(_function("hak_stats_json", ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)))


def trim():
    """Gives all free memory back to the system. Returns how many bytes went back."""
    return _function("hak_trim", ctypes.c_size_t)()


def option(name):
    """The value of an option, such as "PURGE", as a string. ValueError: there is no such option."""
    get = _function("hak_option_get", ctypes.c_size_t, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    ctypes.set_errno(0)
    value = _text(lambda buffer, size: get(name.encode(), buffer, size))
    if not value and ctypes.get_errno() == errno.EINVAL:
        raise ValueError(f"HAKMEM has no option {name}")
    return value


def set_option(name, value):
    """Sets an option of the running process. ValueError: no such option or value. PermissionError: the option is only
    read when a program starts."""
    change = _function("hak_option_set", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
    error = change(name.encode(), str(value).encode())
    if error == errno.EPERM:
        raise PermissionError(error, f"HAKMEM reads {name} only when a program starts")
    if error != 0:
        raise ValueError(f"HAKMEM does not take {name}={value}")


def start_profile(mean_bytes=0):
    """Begins to sample allocations, one every `mean_bytes` bytes on average (0: every PROFILE_BYTES). `hakmem profile
    dump PID` reads the samples from outside. OSError: secure mode, which has no profile."""
    error = _function("hak_profile_start", ctypes.c_int, ctypes.c_size_t)(mean_bytes)
    if error != 0:
        raise OSError(error, "HAKMEM takes no profile in secure mode")


def stop_profile():
    """Stops sampling. The profile still records when blocks that were sampled are freed."""
    _function("hak_profile_stop", None)()
