"""Lets clients behave badly for a while and checks that the server loses no request and nothing else: answers are
complete or explicitly failed, every page is free afterwards, file descriptors and memory do not grow, and SIGTERM under
load lets every answer end. Standard library only. Exit code 1 when a check fails.

usage: server_soak.py COHORT MODEL.gguf [--seconds 600] [--clients 24] [--idle 1000] [--seed 1] [--threads 1]
"""
import argparse
import collections
import http.client
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time


class Server:
    def __init__(self, cohort, model, flags):
        self.process = subprocess.Popen([cohort, "serve", "-m", model, "--port", "0", *flags], stdout=subprocess.PIPE,
                                        text=True)
        line = next(line for line in self.process.stdout if line.startswith("Listening on "))
        self.host, self.port = re.search(r"//([^:]+):(\d+)", line).groups()
        self.port = int(self.port)
        self.vocabulary = self.get("/props")["vocabulary"]
        threading.Thread(target=lambda: collections.deque(self.process.stdout, 0), daemon=True).start()

    def connect(self, timeout=120):
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def get(self, path):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request("GET", path)
        body = connection.getresponse().read()
        connection.close()
        return json.loads(body)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_mib(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize() / 2**20


def request_bytes(server, rng, stream=None, tokens=None):
    body = {"prompt": [rng.randrange(server.vocabulary) for _ in range(rng.choice((1, 8, 60, 300)))],
            "max_tokens": tokens or rng.choice((1, 5, 40, 120)), "ignore_eos": True, "seed": rng.randrange(1000),
            "priority": rng.choice((0, 0, 0, -1, 5)),
            "temperature": rng.choice((0, 1)), "stream": rng.random() < 0.5 if stream is None else stream}
    if rng.random() < 0.1:
        body["n"] = 3
    if rng.random() < 0.1:
        body["grammar"] = "root ::= [a-z ]{1,60}"
    text = json.dumps(body).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % len(text)) + text


def read_all(sock):
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def judge(answer):
    """complete, refused (503), failed (an error that says so), or wrong."""
    status = answer.split(b" ", 2)[1:2]
    if status == [b"503"]:
        return "refused"
    if status != [b"200"]:
        return "wrong"
    if b"text/event-stream" in answer.split(b"\r\n\r\n", 1)[0]:
        if b"data: [DONE]" in answer:
            return "complete"
        return "failed" if b'"error"' in answer else "wrong"
    head, body = answer.split(b"\r\n\r\n", 1)
    length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
    return "complete" if len(body) == length and json.loads(body)["usage"] else "wrong"


def polite(server, rng):
    with server.connect() as s:
        s.sendall(request_bytes(server, rng))
        return judge(read_all(s))


def vanish(server, rng):
    s = server.connect()
    s.sendall(request_bytes(server, rng, stream=True))
    if rng.random() < 0.5:
        s.recv(rng.choice((1, 300, 3000)))
    else:
        time.sleep(rng.random() * 0.05)
    if rng.random() < 0.5:  # RST instead of FIN
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    s.close()
    return "vanished"


def cancel_storm(server, rng):
    sockets = [server.connect() for _ in range(20)]
    for s in sockets:
        s.sendall(request_bytes(server, rng, stream=True, tokens=200))
    for s in sockets:
        s.close()
    return "storm"


def slow(server, rng):
    with server.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(request_bytes(server, rng, stream=True, tokens=60))
        data = b""
        while part := s.recv(512):
            data += part
            time.sleep(0.005)
        return judge(data)


def half_closed(server, rng):
    """The client says that it sends nothing more and still reads, or sends half of a request and waits."""
    with server.connect() as s:
        data = request_bytes(server, rng)
        s.sendall(data[:len(data) // 2])
        time.sleep(rng.random() * 0.2)
        if rng.random() < 0.5:
            return "vanished"
        s.sendall(data[len(data) // 2:])
        return judge(read_all(s))


def noise(server, rng):
    with server.connect(timeout=10) as s:
        try:
            kind = rng.randrange(4)
            if kind == 0:
                s.sendall(rng.randbytes(rng.randrange(1, 5000)))
            elif kind == 1:
                s.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 40000 + b"\r\n\r\n")
            elif kind == 2:
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                          b"Content-Length: 99999999999\r\n\r\n{")
            else:
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                          b"Content-Length: 9\r\n\r\n[[[[[[[[[")
            s.shutdown(socket.SHUT_WR)
            answer = read_all(s)
        except OSError:
            return "noise"
        return "wrong" if answer.startswith(b"HTTP/1.1 2") else "noise"


KINDS = [(polite, 12), (vanish, 6), (cancel_storm, 1), (slow, 1), (half_closed, 2), (noise, 3)]


def run_clients(server, a, seconds, seed, counts, wrong):
    lock = threading.Lock()
    end = time.monotonic() + seconds

    def client(index):
        rng = random.Random(seed * 1000 + index)
        while time.monotonic() < end:
            kind = rng.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0]
            try:
                result = kind(server, rng)
            except Exception as error:  # a lost request shows as a time-out or a reset
                result = "wrong"
                with lock:
                    wrong.append(f"{kind.__name__}: {error!r}")
            with lock:
                counts[f"{kind.__name__} {result}"] += 1

    threads = [threading.Thread(target=client, args=(i,)) for i in range(a.clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def settled(server):
    """Waits until nothing runs; the free and all pages."""
    for _ in range(600):
        stats = server.get("/stats")
        if not stats["running"] and not stats["waiting"]:
            break
        time.sleep(0.1)
    capacity = server.get("/props")["capacity"]
    return stats, capacity


def terminate_under_load(server, rng):
    """SIGTERM while answers run: each ends completely or is refused, and the server exits with 0."""
    sockets = [server.connect() for _ in range(12)]
    for s in sockets:
        s.sendall(request_bytes(server, rng, stream=True, tokens=100))
    time.sleep(0.3)
    server.process.send_signal(signal.SIGTERM)
    results = collections.Counter()
    for s in sockets:
        try:
            results[judge(read_all(s))] += 1
        except OSError as error:
            results[repr(error)] += 1
        s.close()
    try:
        code = server.process.wait(60)
    except subprocess.TimeoutExpired:
        server.process.kill()
        code = "still running after 60 s"
    return dict(results), code


def main():
    p = argparse.ArgumentParser()
    p.add_argument("cohort")
    p.add_argument("model")
    for name, value in (("seconds", 600), ("clients", 24), ("idle", 1000), ("seed", 1)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--threads", default="1", help="of the server")
    a = p.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    # Fewer pages than eight long streams want, so that some are preempted.
    server = Server(a.cohort, a.model, ["--np", "8", "-c", "512", "--kv-positions", "2048", "--threads", a.threads])
    counts, wrong = collections.Counter(), []
    run_clients(server, a, min(20, a.seconds / 4), a.seed, counts, wrong)  # what is allocated once is allocated now
    settled(server)
    time.sleep(3)
    before = server.descriptors(), server.resident_mib()
    idle = []
    for _ in range(a.idle):
        s = server.connect()
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        idle.append(s)
    alive = sum(s.recv(4096).startswith(b"HTTP/1.1 200") for s in idle)
    for s in idle[::2]:
        s.close()
    memory = []
    begin = time.monotonic()
    while time.monotonic() - begin < a.seconds:
        run_clients(server, a, min(30, max(1, a.seconds - (time.monotonic() - begin))), a.seed + len(memory) + 1, counts,
                    wrong)
        memory.append(round(server.resident_mib(), 1))
    for s in idle[1::2]:
        s.close()
    stats, capacity = settled(server)
    time.sleep(3)
    after = server.descriptors(), server.resident_mib()
    drained, code = terminate_under_load(server, random.Random(a.seed))
    checks = {
        "no request lost": not wrong and not any(k.endswith(" wrong") for k in counts),
        "idle connections answered": alive == a.idle,
        "all pages free": capacity["free_pages"] == capacity["pages"],
        "nothing in flight": not stats["running"] and not stats["waiting"],
        "file descriptors": after[0] <= before[0] + 2,
        "memory": after[1] <= before[1] + 32,
        "drained": set(drained) <= {"complete", "refused"} and drained.get("complete", 0) > 0 and code == 0,
    }
    print(json.dumps({"seconds": a.seconds, "requests": sum(counts.values()), "counts": dict(sorted(counts.items())),
                      "wrong": wrong[:10], "descriptors": [before[0], after[0]],
                      "resident_mib": [round(before[1], 1), *memory, round(after[1], 1)], "pages": capacity,
                      "drained": drained, "exit": code, "checks": checks}, indent=1))
    return 0 if all(checks.values()) else 1


sys.exit(main())
