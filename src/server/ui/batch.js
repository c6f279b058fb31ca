// The live view of the batch: numbers and a small history, drawn from /stats.
import {getJson} from "./api.js";

const kHistory = 120;
const byId = (id) => document.getElementById(id);
const history = [];

function draw() {
  const canvas = byId("history");
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const style = getComputedStyle(document.documentElement);
  for (const [name, color] of [["rows", "--second"], ["rate", "--accent"]]) {
    const top = Math.max(1, ...history.map((entry) => entry[name]));
    context.strokeStyle = style.getPropertyValue(color);
    context.lineWidth = 2;
    context.beginPath();
    history.forEach((entry, i) => {
      const x = width - (history.length - 1 - i) * (width / (kHistory - 1));
      const y = height - 6 - (entry[name] / top) * (height - 22);
      i === 0 ? context.moveTo(x, y) : context.lineTo(x, y);
    });
    context.stroke();
    context.fillStyle = style.getPropertyValue(color);
    context.font = "12px system-ui";
    context.fillText(`${Math.round(top)}`, name === "rate" ? 6 : width - 40, 13);
  }
}

const percent = (ratio) => (ratio === null ? "–" : `${Math.round(ratio * 100)} %`);
/** A mean: one digit after the point while that says something. */
const mean = (value) => value.toFixed(value < 100 ? 1 : 0);

/** Every tile is of the same second, which `recent` holds means of; without a step in it there is none to show. */
function show(stats, experts) {
  const recent = stats.recent, capacity = stats.capacity;
  const used = capacity.pages - capacity.free_pages;
  const ofSteps = (text) => (recent.steps ? text() : "–");
  byId("rate").textContent = stats.tokens_per_second.toFixed(0);
  byId("running").textContent = stats.waiting ? `${stats.running} + ${stats.waiting} waiting` : stats.running;
  byId("rows").textContent = ofSteps(() => mean(recent.rows));
  byId("read").textContent = recent.prefill_rows >= 0.05 ? `${mean(recent.prefill_rows)} of prompts` : "";
  byId("experts").textContent = ofSteps(() => (experts ? `${mean(recent.distinct_experts)} of ${experts}` : "–"));
  byId("step").textContent = ofSteps(() => `${mean(recent.step_seconds * 1000)} ms`);
  byId("roofline").textContent = ofSteps(() => percent(recent.roofline_ratio));
  byId("pages").max = capacity.pages;
  byId("pages").value = used;
  byId("pages-text").textContent = `${used} of ${capacity.pages}, ${capacity.reusable_pages} cached`;
  history.push({rate: stats.tokens_per_second, rows: recent.rows});
  if (history.length > kHistory) history.shift();
  draw();
}

/** Asks four times a second while the page is visible; `onStats` also gets every answer. */
export function watchBatch(experts, onStats) {
  const tick = async () => {
    if (!document.hidden) {
      try {
        const stats = await getJson("stats");
        show(stats, experts);
        onStats?.(stats);
      } catch { /* the server restarts, say; the next tick will see */ }
    }
    setTimeout(tick, 250);
  };
  tick();
}
