"""A small FTP server for tests: passive mode, the commands that ftplib and the FTP target use."""

from __future__ import annotations

import calendar
import ftplib
import os
import socket
import threading
import time
from pathlib import Path


class FtpServer:
    """Serves one folder to one client at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def connect(self) -> ftplib.FTP:
        link = ftplib.FTP(timeout=60, encoding="utf-8")
        link.connect("127.0.0.1", self.port)
        link.login("user", "secret")
        return link

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            with link:
                try:
                    _Session(self._root, link).serve()
                except OSError:
                    continue


class _Session:
    def __init__(self, root: Path, link: socket.socket) -> None:
        self._root = os.fsencode(root)
        self._link = link
        self._cwd = b"/"
        self._rest = 0
        self._from = b""
        self._passive: socket.socket | None = None

    def serve(self) -> None:
        self._say("220 ready")
        for line in self._link.makefile("rb"):
            command, _, argument = line.rstrip(b"\r\n").partition(b" ")
            handler = getattr(self, f"do_{command.decode().lower()}", None)
            if handler is None:
                self._say("502 no")
                continue
            try:
                handler(argument)
            except OSError as error:
                self._say(f"550 {error.strerror}")

    def _say(self, text: str) -> None:
        self._link.sendall(text.encode() + b"\r\n")

    def _path(self, name: bytes) -> bytes:
        inner = os.path.normpath(os.path.join(self._cwd, name)).lstrip(b"/")
        return os.path.join(self._root, inner)

    def _data(self) -> socket.socket:
        assert self._passive is not None
        link, _ = self._passive.accept()
        self._passive.close()
        return link

    def do_user(self, _: bytes) -> None:
        self._say("331 password")

    def do_pass(self, word: bytes) -> None:
        self._say("230 in" if word == b"secret" else "530 no")

    def do_type(self, _: bytes) -> None:
        self._say("200 ok")

    def do_pwd(self, _: bytes) -> None:
        self._say(f'257 "{os.fsdecode(self._cwd)}"')

    def do_cwd(self, name: bytes) -> None:
        path = self._path(name)
        if not os.path.isdir(path):
            self._say("550 no folder")
            return
        self._cwd = b"/" + os.path.relpath(path, self._root) if path.rstrip(b"/") != self._root else b"/"
        self._say("250 ok")

    def do_size(self, name: bytes) -> None:
        path = self._path(name)
        self._say(f"213 {os.path.getsize(path)}" if os.path.isfile(path) else "550 no file")

    def do_mdtm(self, name: bytes) -> None:
        self._say("213 " + time.strftime("%Y%m%d%H%M%S", time.gmtime(os.stat(self._path(name)).st_mtime)))

    def do_mfmt(self, argument: bytes) -> None:
        when, _, name = argument.partition(b" ")
        moment = calendar.timegm(time.strptime(when.decode(), "%Y%m%d%H%M%S"))
        os.utime(self._path(name), (moment, moment))
        self._say("213 ok")

    def do_site(self, argument: bytes) -> None:
        command, mode, name = argument.split(b" ", 2)
        assert command == b"CHMOD"
        os.chmod(self._path(name), int(mode, 8))
        self._say("200 ok")

    def do_mkd(self, name: bytes) -> None:
        os.mkdir(self._path(name))
        self._say('257 "made"')

    def do_rmd(self, name: bytes) -> None:
        os.rmdir(self._path(name))
        self._say("250 ok")

    def do_dele(self, name: bytes) -> None:
        os.unlink(self._path(name))
        self._say("250 ok")

    def do_rnfr(self, name: bytes) -> None:
        self._from = self._path(name)
        self._say("350 to?" if os.path.exists(self._from) else "550 no file")

    def do_rnto(self, name: bytes) -> None:
        os.replace(self._from, self._path(name))
        self._say("250 ok")

    def do_rest(self, offset: bytes) -> None:
        self._rest = int(offset)
        self._say("350 ok")

    def do_pasv(self, _: bytes) -> None:
        self._passive = socket.create_server(("127.0.0.1", 0))
        port = self._passive.getsockname()[1]
        self._say(f"227 ok (127,0,0,1,{port >> 8},{port & 255})")

    def do_epsv(self, _: bytes) -> None:
        self._say("502 no")

    def do_nlst(self, _: bytes) -> None:
        self._say("150 coming")
        with self._data() as link:
            link.sendall(b"".join(name + b"\r\n" for name in os.listdir(self._path(b""))))
        self._say("226 done")

    def do_retr(self, name: bytes) -> None:
        with open(self._path(name), "rb") as file:
            offset, self._rest = self._rest, 0
            self._say("150 coming")
            with self._data() as link:
                try:
                    link.sendfile(file, offset)
                except (BrokenPipeError, ConnectionResetError):
                    self._say("426 cut")
                    return
        self._say("226 done")

    def do_stor(self, name: bytes) -> None:
        self._receive(name, "r+b" if self._rest else "wb")

    def do_appe(self, name: bytes) -> None:
        self._receive(name, "ab")

    def _receive(self, name: bytes, mode: str) -> None:
        with open(self._path(name), mode) as file:
            if mode == "r+b":
                file.seek(self._rest)
            self._rest = 0
            self._say("150 go on")
            with self._data() as link:
                while data := link.recv(1 << 16):
                    file.write(data)
        self._say("226 done")
