// Several continuations side by side.
import {stream} from "./api.js";

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

async function run(entry, i, signal) {
  const {card, prompt, output, footer} = entry;
  output.textContent = "";
  footer.textContent = "waiting";
  card.classList.add("live");
  let tokens = 0, first = 0, reason = "";
  const begin = performance.now();
  try {
    await stream("v1/completions", {
      prompt: prompt.value,
      max_tokens: Number(byId("tokens").value),
      temperature: Number(byId("temperature").value),
      top_p: 0.95,
      min_p: 0.05,
      repeat_penalty: 1.1,
      seed: Number(byId("seed").value) + i,
    }, (chunk) => {
      const choice = chunk.choices[0];
      if (!choice) return;
      if (!first) first = performance.now();
      ++tokens;
      output.textContent += choice.text;
      reason = choice.finish_reason ?? reason;
      const seconds = (performance.now() - first) / 1000;
      const rate = tokens > 1 && seconds > 0 ? `${((tokens - 1) / seconds).toFixed(1)} tok/s` : "";
      footer.textContent = `${tokens} tokens  ${rate}  first after ${Math.round(first - begin)} ms`;
    }, signal);
    footer.textContent += reason === "length" ? "" : "  ended";
  } catch (error) {
    footer.textContent = error.name === "AbortError" ? "stopped" : error.message;
    if (error.status === 401) throw error;
  } finally {
    card.classList.remove("live");
  }
}

export async function startAll() {
  stopAll();
  const mine = (aborter = new AbortController());
  byId("stop").disabled = false;
  try {
    await Promise.all(cards.map((entry, i) => run(entry, i, mine.signal)));
  } finally {
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
