"""Requests and replies over sockets, in each way of a list. It measures what fxfer probe measures.

usage: requests.py server|client HOST CERTIFICATE AT-ONCE < WAYS > MEDIANS

A client skips the ways that are null. It measures several others at once.
"""

import json
import multiprocessing
import socket
import ssl
import statistics
import sys
import threading
import time

PORT = 9000
JOIN, TEST = 60, 20  # bytes, about
role, host, certificate, at_once = sys.argv[1:5]
sys.setswitchinterval(1e-4)
ways = json.load(sys.stdin)


class Plain:
    def __init__(self, sock, nodelay):
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)

    def write(self, data):
        self.sock.sendall(data)

    def read(self, size):
        left = memoryview(bytearray(size))
        while left:
            n = self.sock.recv_into(left)
            if not n:
                raise EOFError
            left = left[n:]


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if role == "server" else ssl.PROTOCOL_TLS_CLIENT)
context.minimum_version = ssl.TLSVersion.TLSv1_3
if role == "server":
    context.load_cert_chain(certificate)
    context.num_tickets = 0
else:
    context.check_hostname = False
    context.load_verify_locations(certificate)


class TLS(Plain):
    """TLS whose writes are one system call each, as large as they are."""

    def __init__(self, sock, nodelay):
        super().__init__(sock, nodelay)
        self.inbox, self.outbox = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.inbox, self.outbox, server_side=role == "server")
        self.until(self.tls.do_handshake)
        # What fxfer says first: to join a session, and which test it is. It enlarges the first window.
        for size in JOIN, TEST:
            if role == "server":
                self.read(size)
            else:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.write(bytes(size))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)

    def until(self, step):
        while True:
            try:
                result = step()
                break
            except ssl.SSLWantReadError:
                self.flush()
                data = self.sock.recv(1 << 18)
                if not data:
                    raise EOFError
                self.inbox.write(data)
        self.flush()
        return result

    def flush(self):
        if self.outbox.pending:
            self.sock.sendall(self.outbox.read())

    def write(self, data):
        self.tls.write(data)
        self.flush()

    def read(self, size):
        while size:
            size -= len(self.until(lambda: self.tls.read(size)))


def send(line, data, way, cork):
    if not way["split"]:
        return line.write(data)
    if cork:
        line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    line.write(data[:16])
    line.write(data[16:])
    if cork:
        line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)


def serve(number, way):
    data = bytes(way["size"])

    def talk(sock):
        try:
            line = (TLS if way["tls"] else Plain)(sock, way["server_nodelay"])
            while True:
                line.read(way["size"])
                send(line, data, way, way["server_cork"])
        except (EOFError, ConnectionError):
            sock.close()

    listener = socket.create_server((host, PORT + number), backlog=16)
    while True:
        threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()


def measure(task):
    number, way = task
    if way is None:
        return None
    data, times, line = bytes(way["size"]), [], None
    for n in range(10 + (way["per_connection"] == 0)):
        begin = time.perf_counter()
        if line is None:
            sock = socket.create_connection((host, PORT + number))
            line = (TLS if way["tls"] else Plain)(sock, way["client_nodelay"])
        send(line, data, way, way["client_cork"])
        line.read(way["size"])
        times.append(time.perf_counter() - begin)
        if way["per_connection"] and len(times) % way["per_connection"] == 0:
            line.sock.close()
            line = None
        if way["think_seconds"]:
            time.sleep(way["think_seconds"])
    times = times[way["per_connection"] == 0:]
    return statistics.median(times)


if role == "server":
    for number, way in enumerate(ways):
        threading.Thread(target=serve, args=(number, way), daemon=True).start()
    time.sleep(1)
    print("ready", flush=True)
    threading.Event().wait()
with multiprocessing.get_context("fork").Pool(int(at_once)) as pool:  # no thread waits for another one
    json.dump(pool.map(measure, enumerate(ways), chunksize=1), sys.stdout)
