"""Forks the Python processes that Spark starts to plan from one that has imported already what they
import: that of each streaming query of a source, where imports are two fifths of what a short query
costs, and the daemons that fork a process for each load of a source and for each plan of a batch.

`worker-python` runs this file as a client. It hands its arguments, environment and streams to the
server that `start` began, and ends as the process does that was forked, so that Spark finds
whatever it finds of a process that it started. Without a server, and where a query would import
other modules than the server has, the process starts as ever; so do all of the long form.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys

_ADDRESS = "KEYRANGE_TEST_FORKS"
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_LENGTH_BYTES = 8
_IMPORTED = (
    _RUNNER,
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pandas",
    "pyarrow.dataset",
    "keyrange.jobs.data_source",
    "keyrange.individual_commits.table.commit_table",
    "keyrange.source.individual_commit_strategy",
    "keyrange.source.metadata_cache",
    "keyrange.source.planning_session",
    "keyrange.source.stream",
    "keyrange.storage.delta_store",
    "keyrange.wire.record_kernels",
)


def start() -> None:
    """Begin a server for all that this process starts. It ends with this process."""
    import atexit
    import subprocess
    import tempfile

    address = os.path.join(tempfile.mkdtemp(prefix="kr-forks-"), "socket")
    server = subprocess.Popen(
        [sys.executable, "-u", __file__, "serve", address],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
    )
    atexit.register(server.communicate)
    os.environ[_ADDRESS] = address


def ask(arguments: list[str]) -> None:
    """Have the server fork a process with these arguments, and end as that ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    request = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[_ADDRESS])
        length = len(request).to_bytes(_LENGTH_BYTES, "big")
        socket.send_fds(server, [length], [0, 1, 2])
        server.sendall(request)
        if server.recv(1):
            status = server.recv(16)
            os._exit(os.waitstatus_to_exitcode(int(status)) % 256 if status else 1)
    os.execv(sys.executable, [sys.executable, *arguments])


class Server:
    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._directory = os.path.dirname(address)
        # By the process that was forked for it.
        self._clients: dict[int, socket.socket] = {}
        self._given = _python_path(os.environ)
        self._found = [each for each in sys.path[1:] if each not in self._given]

    def serve(self) -> None:
        """Returns in the processes that are forked, and only there."""
        import select

        woken, waking = os.pipe()
        os.set_blocking(waking, False)
        signal.set_wakeup_fd(waking)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            waited = [0, woken, self._listener, *self._clients.values()]
            ready = select.select(waited, [], [])[0]
            if 0 in ready:
                self._end()
            if woken in ready:
                os.read(woken, 512)
                self._tell_ends()
            # A client says nothing: it was killed, and Spark takes its process for dead.
            for pid in [pid for pid, client in self._clients.items() if client in ready]:
                os.kill(pid, signal.SIGTERM)
                self._clients.pop(pid).close()
            if self._listener in ready and self._forked(self._listener.accept()[0]):
                return

    def _end(self) -> None:
        import shutil

        for pid in self._clients:
            os.kill(pid, signal.SIGTERM)
        shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(0)

    def _tell_ends(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                client = self._clients.pop(ended[0], None)
                if client is not None:
                    with client, contextlib.suppress(OSError):
                        client.sendall(str(ended[1]).encode())

    def _forked(self, client: socket.socket) -> bool:
        """Whether this is the new process."""
        length, streams, _, _ = socket.recv_fds(client, _LENGTH_BYTES, 3)
        with client.makefile("rb") as requests:
            request = requests.read(int.from_bytes(length, "big"))
        arguments, environment, directory = json.loads(request)
        python_path = _python_path(environment)
        pid = os.fork() if self._is_alike(environment, python_path) else -1
        if pid:
            for each in streams:
                os.close(each)
            if pid > 0:
                self._clients[pid] = client
                client.sendall(b"1")
            else:
                client.close()
            return False
        for each in (self._listener, client, *self._clients.values()):
            each.close()
        _become(streams, arguments, environment, directory)
        sys.path[:] = [directory, *python_path, *self._found]
        return True

    def _is_alike(self, environment: dict[str, str], python_path: list[str]) -> bool:
        """Whether a process would import what the server has imported."""
        others = set(python_path) - set(self._given)
        return environment.get("PYTHONHASHSEED", "0") == "0" and not any(
            os.path.exists(os.path.join(each, package))
            for each in others
            for package in ("keyrange", "pyspark")
        )


def _python_path(environment: dict[str, str]) -> list[str]:
    return [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]


def _become(
    streams: list[int], arguments: list[str], environment: dict[str, str], directory: str
) -> None:
    import time

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = arguments[1:]


def _import_all() -> None:
    """What queries import, most of it when they need it. What a process runs it has to import
    itself."""
    import gc
    import importlib

    for name in _IMPORTED:
        importlib.import_module(name)
    del sys.modules[_RUNNER]
    gc.freeze()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        server = Server(sys.argv[2])
        _import_all()
        server.serve()
        import runpy

        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        ask(sys.argv[1:])
