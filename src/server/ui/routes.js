// The routing, live: how many rows chose each expert of each layer, as a map of layers by experts.
import {getJson} from "./api.js";

const kMemory = 0.8;  // share of the picture that stays from one look to the next
const byId = (id) => document.getElementById(id);
let before = null;
let heat = null;

function draw() {
  const canvas = byId("routes");
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(canvas.clientWidth * scale);
  canvas.height = Math.round(canvas.clientHeight * scale);
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  const width = canvas.width / heat[0].length, height = canvas.height / heat.length;
  heat.forEach((layer, y) => {
    const most = Math.max(...layer);
    layer.forEach((value, x) => {
      if (!(value > 0)) return;
      context.globalAlpha = Math.sqrt(value / most);
      context.fillRect(x * width, y * height, Math.max(width - scale, 1), Math.max(height - scale, 1));
    });
  });
}

function add(layers) {
  if (!before || before.length !== layers.length) heat = layers.map((layer) => layer.map(() => 0));
  const changed = before && layers.some((layer, y) => layer.some((count, x) => count !== before[y][x]));
  if (changed) {
    heat = layers.map((layer, y) => layer.map((count, x) => kMemory * heat[y][x] + count - before[y][x]));
    draw();
  }
  before = layers;
}

/** Looks twice a second while the page is visible; the map stays hidden where the device does not count. */
export function watchRoutes() {
  const tick = async () => {
    if (!document.hidden) {
      try {
        const {layers} = await getJson("experts");
        byId("routes-figure").hidden = layers.length === 0;
        if (layers.length > 0) add(layers);
      } catch { /* as in batch.js: the next tick will see */ }
    }
    setTimeout(tick, 500);
  };
  tick();
}
