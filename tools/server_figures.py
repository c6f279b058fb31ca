"""Measures what a server promises its clients: speed beside the engine alone, the first token of a short prompt while a
long one is read, gaps between tokens meanwhile, what idle and queued connections cost, how soon an urgent request is served
by a full server, and what a warm prefix saves.
Starts the servers itself and prints one JSON object. Standard library only.

usage: server_figures.py COHORT MODEL.gguf ladder|long|idle|queued|urgent|warm [--clients 1,2,4,8,16,32] [--rounds 3]
       [--prompt 128] [--new 192] [--threads 0] [--long 4000] [--short 16] [--prefix 2000] [--streams 4]
"""
import argparse
import http.client
import json
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time


class Server:
    """A server with the given flags; ends with the `with` block."""

    def __init__(self, a, *flags):
        threads = ["--threads", str(a.threads)] if a.threads else []
        self.process = subprocess.Popen([a.cohort, "serve", "-m", a.model, "--port", "0", *threads, *flags],
                                        stdout=subprocess.PIPE, text=True)
        line = next(line for line in self.process.stdout if line.startswith("Listening on "))
        self.url = line.split()[-1]
        self.host, port = re.search(r"//([^:]+):(\d+)", line).groups()
        self.port = int(port)
        self.props = self.get("/props")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()

    def connection(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=600)

    def get(self, path):
        connection = self.connection()
        connection.request("GET", path)
        body = json.loads(connection.getresponse().read())
        connection.close()
        return body

    def prompt(self, tokens, salt):
        """Token ids that begin with `salt`, so that no two prompts share a prefix."""
        return [5 + (salt * 7919 + i * 31 + (i * i) % 97) % (self.props["vocabulary"] - 300) for i in range(tokens)]

    def stream(self, prompt, tokens, stop=None, priority=0):
        """When the request was sent and when each token came."""
        connection = self.connection()
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "seed": 1, "ignore_eos": True, "stream": True,
                           "logprobs": 0, "priority": priority})
        sent = time.perf_counter()
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {answer.read()[:300]}")
        times = []
        for line in answer:
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
            if stop and stop.is_set():
                break
        connection.close()
        return sent, times

    def first_token(self, prompt):
        sent, times = self.stream(prompt, 1)
        return times[0] - sent


class Streams:
    """`count` streams that decode until they are stopped."""

    def __init__(self, server, count, tokens, salt):
        self.stop = threading.Event()
        self.times = [[] for _ in range(count)]

        def decode(i):
            self.times[i] = server.stream(server.prompt(32, salt + i), tokens, self.stop)[1]
        self.threads = [threading.Thread(target=decode, args=(i,)) for i in range(count)]
        for t in self.threads:
            t.start()

    def end(self):
        self.stop.set()
        return self.join()

    def join(self):
        for t in self.threads:
            t.join()
        return self.times


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def spread(values):
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def ladder(a):
    """`bench serve` and `bench steps` in turn at the same number of streams, with the same lengths."""
    context = max(512, a.prompt + a.new + 32)  # the client's first request counts what a word takes
    out = []
    with Server(a, "--np", str(max(a.clients)), "-c", str(context)) as server:
        threads = ["--threads", str(a.threads)] if a.threads else []
        for clients in a.clients:
            steps, served, whole_steps, whole, gaps, first = [], [], [], [], [], []
            for _ in range(a.rounds):
                alone = json.loads(subprocess.check_output(
                    [a.cohort, "bench", "steps", "-m", a.model, "-npp", str(a.prompt), "-ntg", str(a.new), "-npl",
                     str(clients), "-r", "1", "-o", "json", *threads], stderr=subprocess.DEVNULL))["points"][0]
                steps.append(alone["decode_tokens_per_second"])
                whole_steps.append(clients * a.new / (alone["prefill_seconds"] + alone["decode_seconds"]))
                level = json.loads(subprocess.check_output(
                    [a.cohort, "bench", "serve", "--url", server.url, "--concurrency", str(clients), "--prompt-tokens",
                     str(a.prompt), "--max-tokens", str(a.new), "--repeats", "1", "-o", "json"],
                    stderr=subprocess.DEVNULL))[0]
                if level["failed"]:
                    raise RuntimeError(level["failure"])
                served.append(level["decode_tok_s"]["median"])
                whole.append(level["whole_tok_s"]["median"])
                gaps.append(1e3 * level["gap_p99_s"])
                first.append(1e3 * level["ttft_mean_s"])
            out.append({"clients": clients, "steps_tok_s": spread(steps), "server_tok_s": spread(served),
                        "ratio": statistics.median(s / t for s, t in zip(served, steps)),
                        "steps_with_prompts_tok_s": spread(whole_steps), "server_with_prompts_tok_s": spread(whole),
                        "ratio_with_prompts": statistics.median(s / t for s, t in zip(whole, whole_steps)),
                        "ttft_mean_ms": statistics.median(first), "gap_p99_ms": statistics.median(gaps)})
            print(f"{clients} clients: {out[-1]}", file=sys.stderr, flush=True)
    return out


def beside_a_long_prompt(a):
    """`streams` decode; a long prompt comes; while it is read, short ones come."""
    with Server(a, "--np", str(a.streams + 2), "-c", str(a.long + 64)) as server:
        alone = statistics.median(server.first_token(server.prompt(a.short, 900 + i)) for i in range(5))
        streams = Streams(server, a.streams, a.long, 100)
        time.sleep(a.settle)
        step_alone = server.get("/stats")["last_step"]["seconds"]
        long_times = []
        begin = time.perf_counter()
        reader = threading.Thread(target=lambda: long_times.extend(server.stream(server.prompt(a.long, 1), 2)[1]))
        reader.start()
        time.sleep(0.05)
        short, steps = [], []
        while not long_times and len(short) < 40:
            short.append(server.first_token(server.prompt(a.short, 1000 + len(short))))
            steps.append(server.get("/stats")["last_step"]["seconds"])
            time.sleep(0.05)
        reader.join()
        times = streams.end()
    end = long_times[0]
    during = [after - before for one in times for before, after in zip(one, one[1:]) if begin <= before and after <= end]
    step = statistics.median(steps)
    return {"streams": a.streams, "long_prompt": a.long, "short_prompt": a.short, "step_alone_ms": 1e3 * step_alone,
            "step_beside_ms": 1e3 * step, "long_ttft_s": end - begin, "shorts": len(short),
            "short_ttft_alone_ms": 1e3 * alone, "short_ttft_ms": {k: 1e3 * v for k, v in spread(short).items()},
            "short_ttft_bound_ms": 1e3 * (3 * step + alone), "gaps": len(during),
            "gap_median_ms": 1e3 * statistics.median(during), "gap_p99_ms": 1e3 * percentile(during, 0.99),
            "gap_p99_by_median": percentile(during, 0.99) / statistics.median(during)}


def rate(times, since, until):
    return sum(since < t <= until for one in times for t in one) / (until - since)


def cost_of_connections(a, queued):
    """Decoding of `streams` with and without other connections, in turn: idle ones, or requests that wait."""
    without, having, waiting = [], [], 0
    with Server(a, "--np", str(a.streams), "-c", "2048", "--queue", str(max(a.queued, 1))) as server:
        for round_ in range(a.rounds):
            for with_others in (False, True) if round_ % 2 == 0 else (True, False):
                streams = Streams(server, a.streams, 2000, 2000 + 100 * round_)
                time.sleep(a.settle)
                others = []
                if with_others:
                    body = json.dumps({"prompt": server.prompt(8, 5), "max_tokens": 1}).encode()
                    text = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(body) + body) if queued else (
                                b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    for _ in range(a.queued if queued else a.idle):
                        s = socket.create_connection((server.host, server.port))
                        s.sendall(text)
                        others.append(s)
                    waiting = server.get("/stats")["waiting"]
                # They are there now; what their coming cost is not what they cost.
                time.sleep(0.3)
                since = time.perf_counter()
                time.sleep(a.seconds)
                until = time.perf_counter()
                times = streams.end()
                (having if with_others else without).append(rate(times, since, until))
                for s in others:
                    s.close()
                while server.get("/stats")["running"] or server.get("/stats")["waiting"]:
                    time.sleep(0.05)
    out = {"streams": a.streams, "without_tok_s": spread(without), "with_tok_s": spread(having),
           "ratio": statistics.median(having) / statistics.median(without)}
    return out | ({"queued": waiting} if queued else {"idle": a.idle})


def urgent_requests(a):
    """The first token of a short urgent prompt when every place is taken and others wait, all of them less urgent."""
    with Server(a, "--np", str(a.streams), "-c", "2048", "--queue", str(a.queued + 1)) as server:
        alone = [server.first_token(server.prompt(a.short, 6000 + i)) for i in range(a.rounds)]
        body = json.dumps({"prompt": server.prompt(a.short, 6100), "max_tokens": 2000, "ignore_eos": True,
                           "priority": 10}).encode()
        others = []
        for _ in range(a.streams + a.queued):
            others.append(socket.create_connection((server.host, server.port)))
            others[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
        while server.get("/stats")["waiting"] < a.queued // 2:  # some may have ended before the last have come
            time.sleep(0.05)
        waiting, short, steps = server.get("/stats")["waiting"], [], []
        while server.get("/stats")["waiting"] and len(short) < 20:
            i = len(short)
            steps.append(server.get("/stats")["last_step"]["seconds"])
            short.append(server.first_token(server.prompt(a.short, 6200 + i)))
            time.sleep(0.05)
        preemptions, left = server.get("/stats")["preemptions"], server.get("/stats")["waiting"]
        for s in others:
            s.close()
    return {"streams": a.streams, "waiting": [waiting, left], "short_prompt": a.short,
            "step_ms": 1e3 * statistics.median(steps), "alone_ttft_ms": {k: 1e3 * v for k, v in spread(alone).items()},
            "urgent_ttft_ms": {k: 1e3 * v for k, v in spread(short).items()}, "preemptions": preemptions}


def warm_prefix(a):
    cold, warm = [], []
    with Server(a, "--np", "4", "-c", str(a.prefix + 64)) as server:
        server.first_token(server.prompt(64, 4999))
        for salt in range(a.rounds):
            prefix = server.prompt(a.prefix, 5000 + salt)
            cold.append(server.first_token(prefix + server.prompt(16, 1)))
            warm += [server.first_token(prefix + server.prompt(16, 2 + k)) for k in range(3)]
    return {"prefix": a.prefix, "cold_ttft_ms": {k: 1e3 * v for k, v in spread(cold).items()},
            "warm_ttft_ms": {k: 1e3 * v for k, v in spread(warm).items()},
            "times_lower": statistics.median(cold) / statistics.median(warm)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("cohort")
    p.add_argument("model")
    p.add_argument("what", choices=("ladder", "long", "idle", "queued", "urgent", "warm"))
    p.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8, 16, 32])
    p.add_argument("--settle", type=float, default=1.0)
    p.add_argument("--seconds", type=float, default=3.0)
    for name, value in (("rounds", 3), ("prompt", 128), ("new", 192), ("threads", 0), ("long", 4000), ("short", 16),
                        ("prefix", 2000), ("streams", 4), ("idle", 500), ("queued", 200)):
        p.add_argument(f"--{name}", type=int, default=value)
    a = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the server ends, too
    measure = {"ladder": ladder, "long": beside_a_long_prompt, "idle": lambda a: cost_of_connections(a, False),
               "queued": lambda a: cost_of_connections(a, True), "urgent": urgent_requests, "warm": warm_prefix}
    print(json.dumps(measure[a.what](a), indent=1))


main()
