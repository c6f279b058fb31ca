// Tokens come faster than a screen draws: what they change is gathered, and made once for each frame.
const changes = new Map();

function make() {
  const gathered = [...changes.values()];
  changes.clear();
  for (const change of gathered) change();
}

/** Calls `change` before the next frame; of several with one `key` only the last, which shows what all of them would. */
export function onFrame(key, change) {
  if (changes.size === 0) requestAnimationFrame(make);
  changes.set(key, change);
}

/** Text that grows at the end of an element, a frame at a time. */
export class GrowingText {
  #node = document.createTextNode("");
  #new = "";

  constructor(element, shown = () => {}) {
    this.element = element;
    this.shown = shown;
    element.replaceChildren(this.#node);
  }

  add(text) {
    this.#new += text;
    onFrame(this, () => {
      if (this.#new) this.#node.appendData(this.#new);
      this.#new = "";
      this.shown();
    });
  }
}
