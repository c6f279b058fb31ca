// A conversation, for models with a chat template.
import {stream} from "./api.js";
import {GrowingText} from "./frame.js";

const byId = (id) => document.getElementById(id);
let messages = [];
let aborter = null;

function add(role, content) {
  const item = document.createElement("li");
  item.className = role;
  item.textContent = content;
  byId("messages").append(item);
  return item;
}

async function ask(onError) {
  const question = byId("question").value.trim();
  if (!question || aborter) return;
  byId("question").value = "";
  messages.push({role: "user", content: question});
  add("user", question);
  const item = add("assistant", "…");
  let text = "", shown = null;
  const mine = (aborter = new AbortController());
  try {
    const heat = byId("temperature").disabled ? {} : {temperature: Number(byId("temperature").value)};
    await stream("v1/chat/completions", {messages, ...heat}, (chunk) => {
      const piece = chunk.choices[0]?.delta.content ?? "";
      if (!piece) return;
      text += piece;
      shown ??= new GrowingText(item, () => item.scrollIntoView({block: "nearest"}));
      shown.add(piece);
    }, mine.signal);
  } catch (error) {
    if (error.name !== "AbortError") onError(error);
  } finally {
    if (aborter === mine) aborter = null;
  }
  if (text) {
    messages.push({role: "assistant", content: text});
  } else {  // nothing was answered: the question can be asked again
    messages.pop();
    item.remove();
  }
}

export function stopChat() {
  aborter?.abort();
}

export function setUpChat(onError) {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    ask(onError);
  });
  byId("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    ask(onError);
  });
  byId("clear").addEventListener("click", () => {
    stopChat();
    messages = [];
    byId("messages").replaceChildren();
    byId("question").focus();
  });
}
