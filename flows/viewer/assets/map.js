// The map's page: loads points and colours, moves and zooms the view, finds points, and asks for what is inside a lasso.
import "./map_actions.js";
import { PointTiles } from "./map_tiles.js";

const stage = document.getElementById("map-stage"), canvas = document.getElementById("map"), card = document.getElementById("map-card");
const form = document.getElementById("map-form"), legend = document.getElementById("map-legend"), said = document.getElementById("map-said");
const context = canvas.getContext("2d", { alpha: false });
const of = stage.dataset.of;
const view = { x: 0, y: 0, scale: 300 };
let tiles, regions = [], labels = [], codes, colours, difference, waiting = false, isComplete = false, held = null, pinned = false, last = null;

const unpack = async (address) => {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".message")?.textContent ?? "the viewer did not answer");
  const bytes = await answer.arrayBuffer(), length = new DataView(bytes).getUint32(0, true);
  return [JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length))), bytes, 4 + length];
};
const attempt = async (work) => { try { said.textContent = ""; await work(); } catch (error) { said.textContent = error.message; } };
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (name) => style(name).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));

// ---- the view ----
const ratio = () => Math.min(2, devicePixelRatio || 1);
const corner = () => ({ left: Math.round(view.x * view.scale - canvas.width / 2), top: Math.round(-view.y * view.scale - canvas.height / 2), scale: view.scale });
const toMap = (px, py) => ({ x: view.x + (px * ratio() - canvas.width / 2) / view.scale, y: view.y - (py * ratio() - canvas.height / 2) / view.scale });
const ask = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };
const panBy = (dx, dy) => { view.x -= dx * ratio() / view.scale; view.y += dy * ratio() / view.scale; ask(); };
const whole = () => { Object.assign(view, { x: 0, y: 0, scale: Math.min(canvas.width, canvas.height) / 2.3 }); last = null; ask(); };
const zoomBy = (factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) => {
  const before = toMap(px, py), picture = document.createElement("canvas");
  if (!last || isComplete) {
    Object.assign(picture, { width: canvas.width, height: canvas.height });
    picture.getContext("2d").drawImage(canvas, 0, 0);
    last = { picture, x: view.x, y: view.y, scale: view.scale };
  }
  view.scale = Math.max(80, Math.min(60000, view.scale * factor));
  const after = toMap(px, py);
  view.x += before.x - after.x; view.y += before.y - after.y;
  ask();
};

function draw() {
  waiting = false;
  const { left, top, scale } = corner();
  context.fillStyle = style("--back") || "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (!tiles) return;
  if (last && last.scale !== scale) {  // the picture before the zoom, until the tiles are there
    const grown = scale / last.scale, width = canvas.width * grown, height = canvas.height * grown;
    context.drawImage(last.picture, last.x * scale - width / 2 - left, -last.y * scale - height / 2 - top, width, height);
    const ready = document.createElement("canvas");
    Object.assign(ready, { width: canvas.width, height: canvas.height });
    isComplete = tiles.draw(ready.getContext("2d"), { left, top, scale }, canvas.width, canvas.height, 25);
    if (isComplete) last = null;
  }
  if (!last) {
    context.fillRect(0, 0, canvas.width, canvas.height);
    isComplete = tiles.draw(context, { left, top, scale }, canvas.width, canvas.height, 8);
    drawLabels(left, top, scale);
  }
  drawLasso();
  if (!isComplete) ask();
}

function makeLabels() {
  labels = regions.map(({ name, x, y, n }) => {
    const picture = document.createElement("canvas"), pen = picture.getContext("2d"), font = `600 ${12 * ratio()}px system-ui, sans-serif`;
    pen.font = font;
    picture.width = Math.ceil(pen.measureText(name).width) + 8; picture.height = 20 * ratio();
    Object.assign(pen, { font, textBaseline: "middle", lineWidth: 4 * ratio(), lineJoin: "round", strokeStyle: style("--back"), fillStyle: style("--ink"), globalAlpha: 0.9 });
    pen.strokeText(name, 4, picture.height / 2); pen.fillText(name, 4, picture.height / 2);
    return { picture, x, y, n };
  });
}

function drawLabels(left, top, scale) {
  const taken = [];
  for (const { picture, x, y } of labels) {
    const box = [x * scale - left - picture.width / 2, -y * scale - top - picture.height / 2, picture.width, picture.height];
    const isFree = taken.every(([a, b, w, h]) => box[0] > a + w || box[0] + box[2] < a || box[1] > b + h || box[1] + box[3] < b);
    if (!isFree) continue;
    taken.push(box);
    context.drawImage(picture, Math.round(box[0]), Math.round(box[1]));
  }
}

// ---- colours ----
function paint() {
  if (!tiles || !colours) return;
  const set = (code, name) => tiles.palette.set(difference ? rgb("--map-other") : rgb(name), 3 * code);
  colours.legend.forEach((_, at) => set(at + 1, `--map-${at + 1}`));
  set(0, "--map-other"); set(255, "--map-none");
  tiles.heat = difference ? heat() : null;
  tiles.clear();
  makeLabels();
  ask();
}

function heat() {
  const { cells, values } = difference, picture = document.createElement("canvas");
  picture.width = picture.height = cells;
  const pen = picture.getContext("2d"), image = pen.createImageData(cells, cells), sides = [rgb("--map-first"), rgb("--map-second")];
  for (let row = 0; row < cells; row++) for (let column = 0; column < cells; column++) {
    const value = values[(cells - 1 - row) * cells + column], at = 4 * (row * cells + column);
    image.data.set(sides[value > 0 ? 0 : 1], at);
    image.data[at + 3] = 230 * Math.abs(value) ** 0.6;
  }
  pen.putImageData(image, 0, 0);
  return picture;
}

function showLegend() {
  legend.replaceChildren();
  if (difference) {
    const line = document.createElement("p"), [first, second] = ["first", "second"].map((name, at) => {
      const words = document.createElement("span");
      words.className = `map-${name}`; words.textContent = `more of ${difference.labels[at]}`;
      return words;
    });
    line.className = "map-scale";
    line.append(first, document.createElement("i"), second);
    legend.append(line);
    return;
  }
  const entries = [...colours.legend.map(({ label, count }, at) => [at + 1, label, count, `--map-${at + 1}`]), [0, "all other values", colours.others, "--map-other"], [255, "no value", colours.none, "--map-none"]];
  const present = entries.filter(([, , count]) => count);
  for (const [code, label, count, name] of present) {
    const button = document.createElement("button"), dot = document.createElement("i");
    button.type = "button"; dot.style.background = `var(${name})`;
    button.append(dot, `${label} (${count.toLocaleString("en")})`);
    button.addEventListener("click", () => {
      const all = present.every(([other]) => tiles.shown[other]);
      if (all) for (const [other] of present) tiles.shown[other] = Number(other === code);
      else tiles.shown[code] = 1 - tiles.shown[code];
      if (present.every(([other]) => !tiles.shown[other])) tiles.shown.fill(1);
      mark(); tiles.clear(); ask();
    });
    button.dataset.code = code;
    legend.append(button);
  }
  mark();
}
const mark = () => { for (const button of legend.querySelectorAll("button")) button.setAttribute("aria-pressed", String(Boolean(tiles.shown[button.dataset.code]))); };

const loadColours = () => attempt(async () => {
  const [header, bytes, from] = await unpack(`/map/colours?${new URLSearchParams({ of, by: form.elements.colour.value })}`);
  colours = header;
  tiles.codes = new Uint8Array(bytes, from);
  tiles.shown.fill(1);
  showLegend(); paint();
});
const loadDifference = () => attempt(async () => {
  const first = form.elements.first.value, second = form.elements.second.value;
  difference = null;
  if (first && second) {
    const [header, bytes, from] = await unpack(`/map/difference?${new URLSearchParams({ of, first, second })}`);
    difference = { ...header, values: new Float32Array(bytes, from) };
  }
  showLegend(); paint();
});

// ---- what is chosen ----
const address = () => {
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  const lasso = new URLSearchParams(location.search).get("lasso");
  if (lasso) query.set("lasso", lasso);
  return query;
};
form.addEventListener("change", async (event) => {
  if (event.target.name === "of") { location.assign(`/map?of=${event.target.value}`); return; }
  history.replaceState(null, "", `/map?${address()}`);
  if (event.target.name === "colour") { await loadColours(); return; }
  const { first, second } = form.elements;
  if (Boolean(first.value) !== Boolean(second.value)) { said.textContent = "Choose both sets to compare them."; if (!difference) return; }
  await loadDifference();
  if (Boolean(first.value) === Boolean(second.value)) {
    const answer = await fetch(`/map?${address()}&part=true`);
    if (answer.ok) document.getElementById("map-regions").innerHTML = await answer.text();
  }
});

let seen = -1, timer;
const show = (number, px, py) => {
  clearTimeout(timer);
  if (number === seen) return;
  seen = number;
  if (number < 0) { card.hidden = true; return; }
  timer = setTimeout(async () => {
    const answer = await fetch(`/map/point?${new URLSearchParams({ of, number })}`);
    if (!answer.ok || seen !== number) return;
    card.innerHTML = await answer.text();
    card.hidden = false;
    const left = Math.min(px + 12, stage.clientWidth - card.offsetWidth - 8), top = py + 12 + card.offsetHeight > stage.clientHeight ? py - card.offsetHeight - 12 : py + 12;
    Object.assign(card.style, { left: `${Math.max(4, left)}px`, top: `${Math.max(4, top)}px` });
  }, 60);
};
const pointAt = (px, py) => { const { x, y } = toMap(px, py); return tiles ? tiles.nearest(x, y, 8 * ratio() / view.scale) : -1; };

// ---- pointer and keys ----
let lassoing = false, line = [];
const lassoButton = stage.querySelector("[data-do=lasso]");
const setLasso = (on) => { lassoing = on; lassoButton.setAttribute("aria-pressed", String(on)); canvas.classList.toggle("lasso", on); };
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  held = { x: event.offsetX, y: event.offsetY, moved: 0, lasso: lassoing || event.shiftKey };
  if (held.lasso) line = [toMap(event.offsetX, event.offsetY)];
});
canvas.addEventListener("pointermove", (event) => {
  if (!held) { if (!pinned) show(pointAt(event.offsetX, event.offsetY), event.offsetX, event.offsetY); return; }
  const dx = event.offsetX - held.x, dy = event.offsetY - held.y;
  if (held.lasso && Math.hypot(dx, dy) < 4) return;
  Object.assign(held, { x: event.offsetX, y: event.offsetY, moved: held.moved + Math.hypot(dx, dy) });
  if (held.lasso) { line.push(toMap(event.offsetX, event.offsetY)); ask(); return; }
  canvas.classList.add("dragging");
  if (held.moved > 3) { pinned = false; show(-1); }
  panBy(dx, dy);
});
const release = (event) => {
  if (!held) return;
  const { moved, lasso } = held;
  held = null;
  canvas.classList.remove("dragging");
  if (lasso && line.length > 2) { setLasso(false); showInside(line); return; }
  if (moved <= 3) { const number = pointAt(event.offsetX, event.offsetY); pinned = false; seen = -2; show(number, event.offsetX, event.offsetY); pinned = number >= 0; }
};
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", () => { held = null; });
canvas.addEventListener("pointerleave", () => { if (!pinned) clearTimeout(timer); });
canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoomBy(1.25 ** (-Math.sign(event.deltaY)), event.offsetX, event.offsetY); }, { passive: false });
canvas.addEventListener("keydown", (event) => {
  const act = { ArrowLeft: () => panBy(80, 0), ArrowRight: () => panBy(-80, 0), ArrowUp: () => panBy(0, 80), ArrowDown: () => panBy(0, -80), "+": () => zoomBy(1.5), "=": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5), 0: whole }[event.key];
  if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") { pinned = false; show(-1); setLasso(false); line = []; ask(); } });
stage.addEventListener("click", (event) => {
  ({ closer: () => zoomBy(1.5), farther: () => zoomBy(1 / 1.5), whole, lasso: () => setLasso(!lassoing) })[event.target.dataset.do]?.();
});

function drawLasso() {
  if (line.length < 2) return;
  const { left, top, scale } = corner();
  context.beginPath();
  for (const { x, y } of line) context.lineTo(x * scale - left, -y * scale - top);
  context.closePath();
  Object.assign(context, { strokeStyle: style("--ink"), lineWidth: 1.5 * ratio() });
  context.stroke();
}

const showInside = (corners) => attempt(async () => {
  const every = Math.ceil(corners.length / 120), kept = corners.filter((_, at) => at % every === 0);
  const lasso = kept.map(({ x, y }) => `${x.toFixed(4)},${y.toFixed(4)}`).join(",");
  const answer = await fetch(`/map/inside?${new URLSearchParams({ of, lasso, part: "true" })}`);
  const place = document.getElementById("map-inside");
  place.innerHTML = answer.ok ? await answer.text() : "";
  if (!answer.ok) throw new Error("the viewer could not list what is inside the lasso");
  const query = address();
  query.set("lasso", lasso);
  history.replaceState(null, "", `/map?${query}`);
  place.querySelector("h2").focus({ preventScroll: true });
  place.scrollIntoView({ block: "nearest" });
});

// ---- a measurement of panning, for benchmarks: the view moves as by a drag, and frames are counted ----
async function measurePan({ seconds = 5, pixels_a_frame = 12 } = {}) {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  await frame();
  const begun = performance.now(), gaps = [];
  let before = begun, wholeFrames = 0;
  for (let turn = 0; before - begun < 1000 * seconds; turn++) {
    const angle = turn / 40;
    panBy(pixels_a_frame * Math.cos(angle), pixels_a_frame * Math.sin(angle));
    await frame();
    const now = performance.now();
    gaps.push(now - before); before = now; wholeFrames += Number(isComplete);
  }
  return { points: tiles.count, frames: gaps.length, fps: gaps.length / ((before - begun) / 1000), slowest_ms: Math.max(...gaps), whole_share: wholeFrames / gaps.length };
}

async function begin() {
  const fit = () => { Object.assign(canvas, { width: Math.round(canvas.clientWidth * ratio()), height: Math.round(canvas.clientHeight * ratio()) }); last = null; ask(); };
  fit(); whole();
  const [header, bytes, from] = await unpack(`/map/points?${new URLSearchParams({ of })}`);
  regions = header.regions;
  tiles = new PointTiles({ ...header, places: new Float32Array(bytes, from) });
  await loadColours();
  if (form.elements.first.value && form.elements.second.value) await loadDifference();
  const corners = (new URLSearchParams(location.search).get("lasso") ?? "").split(",").map(Number);
  if (corners.length >= 6) { line = []; for (let at = 0; at + 1 < corners.length; at += 2) line.push({ x: corners[at], y: corners[at + 1] }); await showInside(line); }
  new ResizeObserver(() => { if (canvas.clientWidth) fit(); }).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { last = null; paint(); });
  window.headraceMap = { measurePan };
  stage.dataset.ready = "true";
}
attempt(begin);
