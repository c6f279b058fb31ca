// Connects the parts of the page: model line, tabs, controls, keys.
import {getJson, setKey} from "./api.js";
import {watchBatch} from "./batch.js";
import {setUpChat, stopChat} from "./chat.js";
import {watchRoutes} from "./routes.js";
import {setCount, startAll, stopAll} from "./streams.js";

const byId = (id) => document.getElementById(id);

/** Below the controls that are shown, where it is seen. */
function showError(error) {
  const line = byId("error");
  byId(byId("chat").hidden ? "controls" : "ask").after(line);
  line.textContent = error?.message ?? "";
  line.hidden = !error;
  if (error) line.scrollIntoView({block: "nearest"});
  if (error?.status === 401) {
    byId("key-label").hidden = false;
    byId("key").focus();
  }
}

function select(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
}

/** Waits for the model, then for the key if one is needed. */
async function connect() {
  for (;;) {
    try {
      const props = await getJson("props");
      showError(null);
      return props;
    } catch (error) {
      if (error.status === 401) {
        showError(error);
      } else {
        const health = await fetch("health").then((r) => r.json(), () => null);
        byId("model").textContent = health
          ? `${health.status}: ${health.what ?? ""} ${Math.round((health.progress ?? 0) * 100)}%` : "The server does not answer.";
      }
      await new Promise((resolve) => setTimeout(resolve, 700));
    }
  }
}

async function main() {
  setCount(Number(byId("count").value));
  byId("count").addEventListener("input", () => setCount(Math.min(64, Math.max(1, Number(byId("count").value) || 1))));
  byId("key").addEventListener("input", () => setKey(byId("key").value));
  byId("controls").addEventListener("submit", (event) => {
    event.preventDefault();
    showError(null);
    startAll().catch(showError);
  });
  byId("stop").addEventListener("click", stopAll);
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.addEventListener("click", () => select(tab.id.slice(4)));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = byId(tab.id === "tab-chat" ? "tab-streams" : "tab-chat");
      if (!other.hidden) {
        select(other.id.slice(4));
        other.focus();
      }
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      stopAll();
      stopChat();
    }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !byId("streams").hidden) {
      event.preventDefault();
      byId("controls").requestSubmit();
    }
  });
  setUpChat(showError);
  const props = await connect();
  const most = Math.min(props.capacity.context, props.capacity.pages * props.capacity.page_positions);
  byId("model").textContent = `${props.model} · ${props.device} · ${props.capacity.streams} streams of ${most}`;
  byId("tokens").max = most - 1;  // a beginning has one position at least
  byId("tokens").value = Math.min(Number(byId("tokens").value), Math.ceil(most / 2));
  byId("count").value = Math.min(Number(byId("count").value), props.capacity.streams);
  setCount(Number(byId("count").value));
  byId("temperature").disabled = Boolean(props.diffusion);  // such models have a schedule of temperatures
  byId("tab-chat").hidden = !props.has_chat_template || props.base_model;
  document.body.dataset.ready = "true";
  watchBatch(props.experts);
  if (props.experts) watchRoutes();
}

main();
