"""Just enough of an NBD client to look at a server: handshake, read, write, and staying idle."""

import socket
import struct

from .machine import Failed

OPT_GO = 7
REP_ACK = 1
REP_INFO = 3


class Client:
    """A connection to the default export behind a unix socket."""

    def __init__(self, path, timeout_s=10):
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.settimeout(timeout_s)
            self.socket.connect(path)
            self.size_bytes = self.handshake()
        except (OSError, struct.error) as e:
            self.socket.close()
            raise Failed(f"{path}: {e}") from None

    def handshake(self):
        if self.exactly(18)[:16] != b"NBDMAGICIHAVEOPT":
            raise Failed("no newstyle NBD server")
        self.socket.sendall(struct.pack(">I", 3))  # Fixed newstyle, no zeroes.
        body = struct.pack(">IH", 0, 0)
        self.socket.sendall(struct.pack(">8sII", b"IHAVEOPT", OPT_GO, len(body)) + body)
        size = None
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.exactly(20))
            body = self.exactly(length)
            if kind == REP_ACK:
                return size
            if kind != REP_INFO:
                raise Failed(f"NBD_OPT_GO was answered by {kind:#x}")
            if body[:2] == b"\0\0":
                size = struct.unpack(">Q", body[2:10])[0]

    def read(self, offset_bytes, length_bytes):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 1, offset_bytes, length_bytes))
        _, error, _ = struct.unpack(">IIQ", self.exactly(16))
        if error:
            raise Failed(f"a read was answered by error {error}")
        return self.exactly(length_bytes)

    def exactly(self, length_bytes):
        data = bytearray()
        while len(data) < length_bytes:
            piece = self.socket.recv(length_bytes - len(data))
            if not piece:
                raise Failed("the server closed the connection")
            data += piece
        return bytes(data)

    def close(self):
        try:
            self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 2, 0, 0))
        except OSError:
            pass
        self.socket.close()
