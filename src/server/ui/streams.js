// Several continuations side by side.
import {stream} from "./api.js";
import {GrowingText} from "./frame.js";

const kPrompts = [
  "It was a dark and stormy night, and",
  "Es war einmal ein König, der",
  "Il était une fois une reine qui",
  "C'era una volta un vecchio che",
  "En un lugar de la costa vivía",
  "Er was eens een visser die",
  "Era uma vez um menino que",
  "Gallia est omnis divisa in partes",
  "The sea was calm that morning, and the captain",
  "Der Wald lag still im Mondlicht, und",
  "La ville dormait encore lorsque",
  "La mattina seguente il principe",
];

const byId = (id) => document.getElementById(id);
let cards = [];
let aborter = null;

function makeCard(i) {
  const card = document.createElement("article");
  card.className = "card";
  const prompt = document.createElement("textarea");
  prompt.rows = 2;
  prompt.value = kPrompts[i % kPrompts.length];
  prompt.setAttribute("aria-label", `Beginning of stream ${i + 1}`);
  const output = document.createElement("output");
  const footer = document.createElement("footer");
  card.append(prompt, output, footer);
  byId("cards").append(card);
  return {card, prompt, output, footer};
}

export function setCount(count) {
  while (cards.length > count) cards.pop().card.remove();
  while (cards.length < count) cards.push(makeCard(cards.length));
}

/** What is below a card's text. */
function showCounts(entry, begin) {
  const seconds = (entry.last - entry.first) / 1000;
  const rate = entry.tokens > 1 && seconds > 0 ? `${((entry.tokens - 1) / seconds).toFixed(1)} tok/s` : "";
  entry.footer.textContent = [
    `${entry.tokens} token${entry.tokens === 1 ? "" : "s"}`,
    rate,
    `first after ${Math.round(entry.first - begin)} ms`,
    entry.reason === "stop" ? "ended" : "",
  ].filter(Boolean).join(" · ");
  if (entry.reason) entry.card.classList.remove("live");
}

/** Takes a piece of text that came for a card. */
function append(entry, choice) {
  entry.last = performance.now();
  entry.first ??= entry.last;
  ++entry.tokens;
  entry.reason = choice.finish_reason;
  entry.text.add(choice.text);
}

/** One request with all beginnings: a browser opens only six connections to a server, and streams would wait for them. */
export async function startAll() {
  stopAll();
  const begin = performance.now();
  const mine = (aborter = new AbortController());
  const running = [...cards];
  for (const entry of running) {
    Object.assign(entry, {tokens: 0, first: undefined, reason: null});
    entry.text = new GrowingText(entry.output, () => showCounts(entry, begin));
    entry.footer.textContent = "waiting";
    entry.card.classList.add("live");
  }
  byId("stop").disabled = false;
  let unanswered = "stopped";
  try {
    const sampling = byId("temperature").disabled ? {} : {
      temperature: Number(byId("temperature").value),
      top_p: 0.95,
      min_p: 0.05,
      repeat_penalty: 1.1,
    };
    await stream("v1/completions", {
      prompt: running.map((entry) => entry.prompt.value),
      max_tokens: Number(byId("tokens").value),
      ...sampling,
      seed: Number(byId("seed").value),
    }, (chunk) => {
      for (const choice of chunk.choices) append(running[choice.index], choice);
    }, mine.signal);
  } catch (error) {
    if (error.name !== "AbortError") {
      unanswered = error.status ? "refused" : "failed";
      throw error;
    }
  } finally {
    for (const entry of running) {
      entry.card.classList.remove("live");
      if (entry.tokens === 0) entry.footer.textContent = unanswered;
    }
    if (aborter === mine) {
      aborter = null;
      byId("stop").disabled = true;
    }
  }
}

export function stopAll() {
  aborter?.abort();
  aborter = null;
  byId("stop").disabled = true;
}
