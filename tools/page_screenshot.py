"""Opens the page of a running server in headless Chromium, checks it on a desktop and on a phone, and saves a picture.

usage: page_screenshot.py URL OUT.png       (pip install playwright; Chromium from the distribution)
"""
import shutil
import sys
import time

from playwright.sync_api import expect, sync_playwright


def wait(page, condition, seconds=120):
    for _ in range(seconds * 10):
        if page.evaluate(condition):
            return
        time.sleep(0.1)
    raise TimeoutError(condition)


# Counts how often the text of one element changes between two frames.
COUNT_CHANGES = """selector => {
  window.changes = {most: 0, all: 0};
  const seen = new Map();
  const frame = () => { seen.clear(); requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
  new MutationObserver((records) => {
    for (const {target} of records) {
      seen.set(target, (seen.get(target) ?? 0) + 1);
      window.changes.most = Math.max(window.changes.most, seen.get(target));
      ++window.changes.all;
    }
  }).observe(document.querySelector(selector), {characterData: true, subtree: true});
}"""


def check_changes(page, tokens):
    changes = page.evaluate("window.changes")
    assert changes["all"] > 0 and changes["most"] == 1, f"{changes}: more than one change of a text in a frame"
    print(f"{tokens} tokens were {changes['all']} changes of texts, at most one of each text in a frame")


def check_tiles(page):
    """The tiles are means of the second that the rates are of, as /stats has them."""
    wait(page, "document.getElementById('rows').textContent !== '–'")
    rows, step, rate = (float(page.locator(f"#{name}").text_content().split()[0]) for name in ("rows", "step", "rate"))
    recent = page.evaluate("fetch('stats').then((r) => r.json())")["recent"]
    assert recent["steps"] > 1 and 0 < rows <= 1000 and step > 0, (recent, rows, step)
    # Rows of prompts give no tokens, and between steps time passes, too.
    assert rate <= 1.2 * rows / (step / 1000), f"{rate} tok/s cannot be of steps of {rows} rows in {step} ms"


def check_chat(page):
    """A turn, sent with Enter and streamed, and a new chat; whether or not the model was taught to chat."""
    page.locator("#tab-chat").click()
    page.evaluate(COUNT_CHANGES, "#messages")
    page.fill("#question", "Tell me of a captain.")
    page.keyboard.press("Enter")
    wait(page, "document.querySelector('#messages .assistant')?.textContent.length > 100")
    page.keyboard.press("Escape")
    expect(page.locator("#messages li")).to_have_count(2)
    check_changes(page, "the chat's")
    page.locator("#clear").click()
    expect(page.locator("#messages li")).to_have_count(0)


def main(url, out):
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light")
        problems, foreign = [], []
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: problems.append(str(e)))
        page.on("request", lambda r: foreign.append(r.url) if not r.url.startswith(url) else None)
        page.goto(url)
        page.wait_for_selector("body[data-ready=true]", timeout=60000)
        page.fill("#tokens", "1500")
        page.evaluate(COUNT_CHANGES, "#cards")
        page.keyboard.press("Control+Enter")
        # Polled from here: the page's own policy forbids the evaluation that wait_for_function does inside of it.
        wait(page, "(() => { const o = [...document.querySelectorAll('.card output')];"
                   " return o.length >= 4 && o.every((e) => e.textContent.length > 200); })()")
        wait(page, "Number(document.getElementById('rate').textContent) > 0")
        check_tiles(page)
        props = page.evaluate("fetch('props').then((r) => r.json())")
        chats = props["has_chat_template"] and not props["base_model"]
        (expect(page.locator("#tab-chat")).to_be_visible if chats else expect(page.locator("#tab-chat")).to_be_hidden)()
        if props["experts"] and page.evaluate("fetch('experts').then((r) => r.json())")["layers"]:
            wait(page, "!document.getElementById('routes-figure').hidden")
            drawn = ("(() => { const c = document.getElementById('routes');"
                     " return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0); })()")
            wait(page, drawn)
        time.sleep(1.5)  # a whole second of steps, which the rate is of
        page.screenshot(path=out)
        tokens = page.evaluate("[...document.querySelectorAll('.card footer')]"
                               ".reduce((sum, e) => sum + (parseInt(e.textContent) || 0), 0)")
        check_changes(page, tokens)
        page.keyboard.press("Escape")
        expect(page.locator("#stop")).to_be_disabled()
        expect(page.locator(".card.live")).to_have_count(0)
        # No step in the last second: no tile shows one of long ago.
        expect(page.locator("#rate")).to_have_text("0")
        for name in ("rows", "experts", "step", "roofline"):
            expect(page.locator(f"#{name}")).to_have_text("–")
        # A phone: nothing is wider than the screen.
        page.set_viewport_size({"width": 360, "height": 740})
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, f"the page is {width} pixels wide on a screen of 360"
        for name in ("button", "input", "textarea"):
            for element in page.locator(f"{name}:visible:enabled").all():
                element.focus()
                assert element.evaluate("e => e === document.activeElement"), f"a {name} cannot be focused"
        if props["has_chat_template"]:  # shown as if the model had been taught to use it
            page.route("**/props", lambda route: route.fulfill(json=props | {"base_model": False}))
            page.goto(url)
            page.wait_for_selector("body[data-ready=true]", timeout=60000)
            check_chat(page)
        assert not problems, problems
        assert not foreign, foreign
        browser.close()
    print(f"{out}: the page works at 1280 and 360 pixels")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/") + "/", sys.argv[2])
