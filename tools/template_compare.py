#!/usr/bin/env python3
"""Compares Cohort's chat templates with Python's jinja2 as transformers configures it (pip install jinja2 transformers).

  template_compare.py                    writes tests/golden/template/*.json: what jinja2 makes of the templates beside them with the
                                         conversations of template_conversations.py, and of the snippets of template_snippets.py
  template_compare.py random N [SEED] [--test PROGRAM]
                                         makes N random snippets, and has the test program (build/release/test_text) compare them
  template_compare.py seeds FOLDER       writes the seeds of the fuzz target (tests/fuzz/seeds/template)
"""
import copy
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import jinja2
from transformers.utils import chat_template_utils

from template_conversations import CONVERSATIONS

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/template"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class FixedTime(datetime.datetime):
    """The clock of the fixtures, as in golden_test.cpp."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 3, 9, 14, 5, 7)


chat_template_utils.datetime = FixedTime


def constant_item(self, eval_ctx=None, as_const=jinja2.nodes.Getitem.as_const):
    # jinja2 folds constants, and then reads 5[1:] as undefined although it refuses n[1:]; here both are refused.
    if isinstance(self.arg, jinja2.nodes.Slice):
        raise jinja2.nodes.Impossible
    return as_const(self, eval_ctx)


jinja2.nodes.Getitem.as_const = constant_item


def failure(error):
    """What a fixture says of an error: the words of raise_exception, or that there is one."""
    return str(error) if type(error) is jinja2.exceptions.TemplateError else True


def render_chat(source, conversation):
    # tokenizer.apply_chat_template refuses an empty conversation, drops nulls and then calls render_jinja_template
    messages = chat_template_utils._normalize_chat_messages(json.loads(json.dumps(conversation["messages"])))
    rendered, _ = chat_template_utils.render_jinja_template(
        [messages], tools=conversation.get("tools"), documents=conversation.get("documents"), chat_template=source,
        add_generation_prompt=conversation.get("add_generation_prompt", False), **TOKENS, **conversation.get("variables", {}))
    return rendered[0]


def render_snippet(source, context):
    # a copy, because |indent of a list changes it before it fails
    return chat_template_utils._compile_jinja_template(source).render(**copy.deepcopy(context))


def outcome(render, *arguments):
    try:
        text = render(*arguments)
        text.encode()  # lone surrogates cannot be written
        return {"expected": text}
    except Exception as error:
        return {"error": failure(error)}


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def write_fixtures():
    from template_snippets import CONTEXT, SNIPPETS
    write_json(GOLDEN / "conversations.json", CONVERSATIONS)
    total = errors = 0
    for path in sorted(GOLDEN.glob("*.jinja")):
        source = path.read_text()
        cases = [{"conversation": name, **outcome(render_chat, source, conversation)} for name, conversation in CONVERSATIONS.items()]
        write_json(GOLDEN / f"chat_{path.stem}.json", {"template": path.name, **TOKENS, "cases": cases})
        failed = sum("error" in case for case in cases)
        total, errors = total + len(cases), errors + failed
        print(f"{path.name}: {len(cases)} conversations, {failed} refused")
    print(f"{total} conversations, {errors} refused")
    cases = [{"template": source, **outcome(render_snippet, source, CONTEXT)} for source in SNIPPETS]
    cases = [case for case in cases if not INCOMPARABLE.search(case.get("expected", ""))]
    write_json(GOLDEN / "snippets.json", {"context": CONTEXT, "cases": cases})
    print(f"{len(cases)} snippets, {sum('error' in case for case in cases)} refused")


def write_seeds(folder):
    from template_snippets import CONTEXT, SNIPPETS
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(GOLDEN.glob("*.jinja")):
        (folder / path.name).write_text(path.read_text())
    good = [source for source in SNIPPETS if "expected" in outcome(render_snippet, source, CONTEXT)]
    for i in range(0, len(good), 40):
        (folder / f"snippets_{i // 40:02}.jinja").write_text("\n".join(good[i:i + 40]))


# What cannot be compared: addresses, and what Python prints of objects that only it has.
INCOMPARABLE = re.compile(r"0x[0-9a-f]{6,}|<(bound|built-in|function|class|generator|list_|dict_|str_|tuple|range_|jinja2|transformers|reversed|method)|_compile_jinja|iterator object|lipsum|\dj\)", re.IGNORECASE)


class TooLong(BaseException):  # not an error of the template
    pass


def stop(*_):
    raise TooLong


def compare_random(count, seed, program):
    from template_random import Generator
    from template_snippets import CONTEXT
    generator = Generator(seed)
    signal.signal(signal.SIGVTALRM, stop)
    cases, skipped = [], 0
    while len(cases) < count:
        source = generator.template()
        signal.setitimer(signal.ITIMER_VIRTUAL, 2)
        try:
            result = outcome(render_snippet, source, CONTEXT)
        except TooLong:
            skipped += 1
            continue
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        text = result.get("expected", "")
        if INCOMPARABLE.search(text) or len(text) > 20000 or re.search(r"\d{39}", text):
            skipped += 1
            continue
        cases.append({"template": source, **result})
    with tempfile.TemporaryDirectory() as folder:
        write_json(pathlib.Path(folder) / "random.json", {"context": CONTEXT, "cases": cases})
        run = subprocess.run([program, "--gtest_filter=TemplateGolden.RandomCases", "--gtest_brief=1"], capture_output=True, text=True,
                             env={**os.environ, "COHORT_TEMPLATE_CASES": folder})
    mismatches = run.stdout.count("Failure\n")
    print(run.stdout[-60000:] if mismatches else "", end="")
    refused = sum("error" in case for case in cases)
    print(f"seed {seed}: {count} random snippets compared ({refused} refused by jinja2, {skipped} incomparable left out), "
          f"{mismatches} mismatches, exit {run.returncode}")
    return run.returncode


def main():
    arguments = sys.argv[1:]
    program = str(ROOT / "build/release/test_text")
    if "--test" in arguments:
        at = arguments.index("--test")
        program = arguments[at + 1]
        del arguments[at:at + 2]
    if not arguments:
        write_fixtures()
    elif arguments[0] == "seeds" and len(arguments) == 2:
        write_seeds(pathlib.Path(arguments[1]))
    elif arguments[0] == "random" and len(arguments) in (2, 3):
        sys.exit(compare_random(int(arguments[1]), int(arguments[2]) if len(arguments) == 3 else 1, program))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
