"""Measures what a running server promises its clients beside throughput (`cohort bench serve` measures that):
the first token of a short prompt while a long one is read, gaps between tokens meanwhile, what idle and queued
connections cost, and what a warm prefix saves. Prints one JSON object. Standard library only.

usage: server_figures.py URL [--long 4000] [--short 16] [--prefix 2000] [--streams 4] [--idle 500] [--queued 200]
"""
import argparse
import http.client
import json
import socket
import statistics
import threading
import time
import urllib.parse


class Server:
    def __init__(self, url):
        self.address = urllib.parse.urlparse(url)
        with self.request("GET", "/props") as answer:
            self.props = json.load(answer)

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=600)
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {answer.read()[:300]}")
        return answer

    def prompt(self, tokens, salt):
        """Token ids that begin with `salt`, so that no two prompts share a prefix."""
        return [5 + (salt * 7919 + i * 31 + (i * i) % 97) % (self.props["vocabulary"] - 300) for i in range(tokens)]

    def stream(self, prompt, tokens, stop=None):
        """Times of the pieces of an answer, from sending on."""
        begin = time.perf_counter()
        times = []
        answer = self.request("POST", "/v1/completions", {
            "prompt": prompt, "max_tokens": tokens, "seed": 1, "ignore_eos": True, "stream": True, "logprobs": 0})
        with answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    times.append(time.perf_counter() - begin)
                if stop and stop.is_set():
                    break
        return times


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def gaps(times):
    return [b - a for a, b in zip(times, times[1:])]


def beside_a_long_prompt(server, a):
    """`streams` decode; a long prompt comes; while it is read, short ones come."""
    stop = threading.Event()
    results = [None] * a.streams
    def decode(i):
        results[i] = server.stream(server.prompt(32, 100 + i), a.room, stop)
    threads = [threading.Thread(target=decode, args=(i,)) for i in range(a.streams)]
    for t in threads:
        t.start()
    time.sleep(a.settle)
    before = time.perf_counter()
    quiet = json.load(server.request("GET", "/stats"))["last_step"]["seconds"]
    long_times = []
    reader = threading.Thread(target=lambda: long_times.extend(server.stream(server.prompt(a.long, 1), 2)))
    reader.start()
    time.sleep(0.05)
    short, steps = [], []
    while not long_times and len(short) < 20:
        short.append(server.stream(server.prompt(a.short, 1000 + len(short)), 1)[0])
        steps.append(json.load(server.request("GET", "/stats"))["last_step"]["seconds"])
    read = time.perf_counter() - before
    reader.join()
    stop.set()
    for t in threads:
        t.join()
    # Only gaps while the long prompt was being read.
    during = [g for times in results for g, end in zip(gaps(times), times[1:]) if a.settle <= end <= a.settle + read]
    return {"streams": a.streams, "long_prompt": a.long, "short_prompt": a.short, "step_alone_ms": 1e3 * quiet,
            "step_beside_ms": 1e3 * statistics.median(steps) if steps else None, "long_ttft_s": long_times[0],
            "short_ttft_ms": [round(1e3 * s, 1) for s in short],
            "short_ttft_median_ms": 1e3 * statistics.median(short) if short else None,
            "gap_median_ms": 1e3 * statistics.median(during), "gap_p99_ms": 1e3 * percentile(during, 0.99),
            "gap_p99_by_median": percentile(during, 0.99) / statistics.median(during)}


def decode_rate(server, a, salt):
    """Tokens a second of all streams while all decode."""
    results = [None] * a.streams
    def decode(i):
        results[i] = (time.perf_counter(), server.stream(server.prompt(32, salt + i), a.tokens))
    threads = [threading.Thread(target=decode, args=(i,)) for i in range(a.streams)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    absolute = [[begin + t for t in times] for begin, times in results]
    first, last = max(times[0] for times in absolute), min(times[-1] for times in absolute)
    return sum(1 for times in absolute for t in times if first < t <= last) / (last - first)


def idle_and_queued(server, a):
    slots = server.props["capacity"]["streams"]
    a_rate, loaded = [], []
    for round_ in range(3):
        a_rate.append(decode_rate(server, a, 2000 + 100 * round_))
        idle = [socket.create_connection((server.address.hostname, server.address.port)) for _ in range(a.idle)]
        for s in idle:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        # The queue behind the running streams: long requests that fill every other slot would change the batch, so
        # as many streams as there are slots decode, and the rest waits.
        queued = []
        if a.streams == slots:
            rate = []
            worker = threading.Thread(target=lambda: rate.append(decode_rate(server, a, 3000 + 100 * round_)))
            worker.start()
            time.sleep(0.3)
            body = json.dumps({"prompt": server.prompt(8, 5), "max_tokens": 1, "stream": True}).encode()
            for _ in range(a.queued):
                s = socket.create_connection((server.address.hostname, server.address.port))
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                          b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
                queued.append(s)
            waiting = json.load(server.request("GET", "/stats"))["waiting"]
            worker.join()
            loaded += rate
        else:
            waiting = 0
            loaded.append(decode_rate(server, a, 3000 + 100 * round_))
        for s in idle + queued:
            s.close()
        time.sleep(0.5)
    return {"streams": a.streams, "idle": a.idle, "queued": waiting, "alone_tok_s": statistics.median(a_rate),
            "loaded_tok_s": statistics.median(loaded), "ratio": statistics.median(loaded) / statistics.median(a_rate)}


def warm_prefix(server, a):
    cold, warm = [], []
    for salt in range(3):
        prefix = server.prompt(a.prefix, 5000 + salt)
        cold.append(server.stream(prefix + server.prompt(16, 1), 1)[0])
        warm += [server.stream(prefix + server.prompt(16, 2 + k), 1)[0] for k in range(3)]
    return {"prefix": a.prefix, "cold_ttft_ms": 1e3 * statistics.median(cold), "warm_ttft_ms": 1e3 * statistics.median(warm),
            "times_lower": statistics.median(cold) / statistics.median(warm)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("url")
    p.add_argument("--only", default="long,idle,warm")
    p.add_argument("--settle", type=float, default=1.0)
    for name, value in (("long", 4000), ("short", 16), ("prefix", 2000), ("streams", 4), ("idle", 500), ("queued", 200),
                        ("tokens", 128), ("room", 1500)):
        p.add_argument(f"--{name}", type=int, default=value)
    a = p.parse_args()
    server = Server(a.url)
    out = {"model": server.props["model"], "device": server.props["device"]}
    for name, measure in (("long", beside_a_long_prompt), ("idle", idle_and_queued), ("warm", warm_prefix)):
        if name in a.only.split(","):
            out[name] = measure(server, a)
    print(json.dumps(out, indent=1))


main()
