"""What deploy/ promises: the Grafana dashboard is a valid model and asks only for metrics that a server exports, and
systemd accepts the unit.

usage: deploy_test.py COHORT MODEL.gguf
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

COHORT, MODEL = sys.argv[1], sys.argv[2]
DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
METRIC = re.compile(r"\b(?:vllm:|cohort_)\w+")


def strings(value, key=""):
    """Every (key, string) of a JSON value."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from strings(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner, key)


class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = json.loads((DEPLOY / "grafana-dashboard.json").read_text())

    def test_every_metric_is_exported(self):
        process = subprocess.Popen([COHORT, "serve", "-m", MODEL, "--threads", "1", "--port", "0"],
                                   stdout=subprocess.PIPE, text=True)
        try:
            url = next(m.group(1) for m in (re.match(r"Listening on (\S+)", line) for line in process.stdout) if m)
            request = urllib.request.Request(url + "/v1/completions", b'{"prompt":[5,6,7],"max_tokens":4}',
                                             {"Content-Type": "application/json"})
            urllib.request.urlopen(request).read()
            text = urllib.request.urlopen(url + "/metrics").read().decode()
        finally:
            process.terminate()
            process.communicate(timeout=60)
        exported = {re.match(r"[\w:]+", line).group(0) for line in text.splitlines() if line and line[0] != "#"}
        asked = {name for key, text in strings(self.model) if key in ("expr", "query") for name in METRIC.findall(text)}
        self.assertGreater(len(asked), 10)
        self.assertEqual(asked - exported, set())

    def test_panels(self):
        panels = self.model["panels"]
        self.assertEqual(len({p["id"] for p in panels}), len(panels), "ids are unique")
        taken = set()
        for panel in panels:
            self.assertTrue(panel["title"] and panel["type"])
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, f"{panel['title']} lies over another panel")
            taken |= cells
            if panel["type"] == "row":
                continue
            targets = panel["targets"]
            self.assertEqual(len({t["refId"] for t in targets}), len(targets))
            for target in targets:
                expression = target["expr"]
                self.assertTrue(METRIC.search(expression), expression)
                for opening, closing in ("()", "{}", "[]"):
                    self.assertEqual(expression.count(opening), expression.count(closing), expression)

    def test_variables_are_defined(self):
        known = {v["name"] for v in self.model["templating"]["list"]}
        used = {name for _, text in strings(self.model) for name in re.findall(r"\$\{?(\w+)", text)}
        self.assertEqual({n for n in used if not n.startswith("__")} - known, set())


class Unit(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_accepts_it(self):
        # The check wants the program to exist, so the unit is read with the one that is tested.
        text = (DEPLOY / "cohort.service").read_text()
        self.assertIn("ExecStart=/usr/local/bin/cohort serve", text)
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "cohort.service"
            unit.write_text(text.replace("/usr/local/bin/cohort", COHORT))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
