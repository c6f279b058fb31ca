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

function show(stats, experts) {
  const step = stats.last_step, capacity = stats.capacity;
  const used = capacity.pages - capacity.free_pages;
  byId("rate").textContent = stats.tokens_per_second.toFixed(0);
  byId("running").textContent = stats.waiting ? `${stats.running} + ${stats.waiting} waiting` : stats.running;
  byId("rows").textContent = step.prefill_rows ? `${step.rows} (${step.prefill_rows} read)` : step.rows;
  byId("experts").textContent = experts ? `${step.distinct_experts.toFixed(1)} of ${experts}` : "–";
  byId("step").textContent = `${(step.seconds * 1000).toFixed(1)} ms`;
  byId("roofline").textContent = step.roofline_ratio === null ? "–" : `${Math.round(step.roofline_ratio * 100)} %`;
  byId("pages").max = capacity.pages;
  byId("pages").value = used;
  byId("pages-text").textContent = `${used} of ${capacity.pages}, ${capacity.reusable_pages} in the prefix cache`;
  history.push({rate: stats.tokens_per_second, rows: stats.running ? step.rows : 0});
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
