"use strict";
// Draws what Picture (cli/src/picture.rs) holds: once, or again every second if the page is served by `hakmem view`.
const SLOTS = 32, FIELDS = 5, NONE = -1; // a slot: kind, blocks used, owner, resident bytes, slots back
const by = (id) => document.getElementById(id);
const canvas = by("map"), pen = canvas.getContext("2d"), dark = matchMedia("(prefers-color-scheme:dark)");
const CHIPS = 18; // classes that can be picked before "more" is pressed
const chosen = new Set(); // names of the classes the reader picked; none: all
let data = JSON.parse(by("data").textContent);
let place = null; // how the tiles lie
let allChips = false;
let at = null; // the slot under the cursor, counted over all tiles

// ---- words and elements ----

function digits(value) {
  const size = Math.abs(value);
  const text = value.toFixed(size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 4);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function bytes(value) {
  const units = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const unit = units.find(([size]) => Math.abs(value) >= size * 0.9995);
  return unit ? `${digits(value / unit[0])} ${unit[1]}` : `${digits(value)} B`;
}

const count = (value) => value.toLocaleString("en");

// Texts are never read as markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function coloured(name, look) {
  const made = element(name);
  made.style.setProperty("--light", look.light);
  made.style.setProperty("--dark", look.dark);
  return made;
}

// The value of a number is kept beside its text: to sort by, and to be compared by tests.
function cell(path, value, text) {
  return element("td", { "data-path": path, "data-value": value }, text);
}

function fill(table, rows) {
  table.tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = element("tr");
    row.append(...cells);
    return row;
  }));
}

// ---- terms and tables ----

function showTerms() {
  by("headline").textContent = data.headline;
  const process = data.process;
  by("lead").textContent = `HAKMEM ${process.version}, ` +
    `${count(process.threads)} thread${process.threads === 1 ? "" : "s"}, ` +
    `running for ${span(process.age_ms / 1000)}, at its largest ${bytes(process.rss_peak)}.`;
  const sum = data.parts.reduce((total, part) => total + part.bytes, 0) || 1;
  by("bar").replaceChildren(...data.parts.filter((part) => part.bytes > 0).map((part) => {
    const box = coloured("div", data.looks[part.name]);
    box.style.flexGrow = part.bytes / sum;
    box.title = `${part.name}: ${bytes(part.bytes)}`;
    return box;
  }));
  by("terms").replaceChildren(...data.parts.map((part, number) => {
    const swatch = coloured("span", data.looks[part.name]);
    swatch.className = "swatch";
    const item = element("li", { "data-path": `parts[${number}].bytes`, "data-value": part.bytes, title: part.help });
    item.append(swatch, element("b", {}, part.name), ` ${bytes(part.bytes)}`);
    return item;
  }));
}

function span(seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${digits(seconds)} s`;
}

function showTables() {
  fill(by("classes"), data.classes.map((one, number) => {
    const path = (field) => `classes[${number}].${field}`;
    const numbers = ["slabs", "live_blocks", "cached_blocks", "free_blocks"].map((field) =>
      cell(path(field), one[field], count(one[field])));
    const sizes = ["live", "cached", "free", "resident", "free_pages"].map((field) =>
      cell(path(field), one[field], bytes(one[field])));
    return [element("td", {}, data.class_names[number]), ...numbers, ...sizes];
  }));
  fill(by("heaps"), data.heaps.map((heap, number) => [
    cell(`heaps[${number}].number`, heap.number, `heap ${heap.number}`),
    element("td", {}, heap.in_use ? "a thread's" : "free"),
    cell(`heaps[${number}].owned_slabs`, heap.owned_slabs, count(heap.owned_slabs)),
    cell(`heaps[${number}].cached`, heap.cached, bytes(heap.cached)),
  ]));
  fill(by("rest"), data.rest.map((mapping, number) => [
    element("td", {}, mapping.name),
    cell(`rest[${number}].rss`, mapping.rss, bytes(mapping.rss)),
  ]));
  for (const heading of document.querySelectorAll("th[aria-sort]")) {
    const down = heading.getAttribute("aria-sort") === "descending" ? -1 : 1;
    sort(heading.closest("table").tBodies[0], heading.cellIndex, down);
  }
}

// ---- classes to pick ----

function showChips() {
  const slots = new Map();
  for (const tile of data.superslabs)
    for (let i = 0; i < SLOTS * FIELDS; i += FIELDS) {
      const name = data.kinds[tile.slots[i]].name;
      slots.set(name, (slots.get(name) ?? 0) + 1);
    }
  const names = [...slots.keys()].sort((a, b) => rank(a) - rank(b) || slots.get(b) - slots.get(a));
  const ink = colours();
  const shown = allChips ? names : names.slice(0, CHIPS);
  by("chips").replaceChildren(...shown.map((name) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = ink[name];
    const button = element("button", { type: "button", "aria-pressed": chosen.has(name), "data-name": name });
    button.append(swatch, name, element("small", { "data-value": slots.get(name) }, count(slots.get(name))));
    button.addEventListener("click", () => choose(name));
    return element("li", {}, button);
  }), element("li", {}, moreButton(names.length - shown.length), allButton()));
}

// Free ones first.
const rank = (name) => (["EMPTY", "LAZY", "UNUSED"].includes(name) ? 0 : 1);

function moreButton(hidden) {
  const button = element("button", { type: "button", class: "all" }, `${hidden} more`);
  button.hidden = hidden === 0;
  button.addEventListener("click", () => {
    allChips = true;
    showChips();
  });
  return button;
}

function allButton() {
  const button = element("button", { type: "button", class: "all", id: "all" }, "show all");
  button.hidden = chosen.size === 0;
  button.addEventListener("click", () => choose(null));
  return button;
}

function choose(name) {
  if (name === null) chosen.clear();
  else if (!chosen.delete(name)) chosen.add(name);
  for (const button of by("chips").querySelectorAll("[data-name]"))
    button.setAttribute("aria-pressed", chosen.has(button.dataset.name));
  by("chips").querySelector("#all").hidden = chosen.size === 0;
  draw();
}

// ---- the map ----

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function colours() {
  const found = {};
  for (const [name, look] of Object.entries(data.looks)) found[name] = dark.matches ? look.dark : look.light;
  return { ...found, EMPTY: styleOf("--one"), LAZY: styleOf("--lazy"), UNUSED: styleOf("--unused") };
}

// The largest cells with which the map stays on about two screens.
function layout() {
  const width = canvas.parentElement.clientWidth, tiles = data.superslabs.length;
  for (const size of [16, 14, 12, 10, 8, 7, 6, 5, 4, 3]) {
    const gap = Math.max(3, Math.round(size * 0.7));
    const gutter = tiles ? 12 + 7 * String(data.superslabs.at(-1).number).length : 0;
    const [wide, high] = [8 * size + gap, 4 * size + gap];
    const columns = Math.max(1, Math.floor((width - gutter + gap) / wide));
    place = { size, gap, gutter, wide, high, columns, width, height: Math.max(1, Math.ceil(tiles / columns)) * high };
    if (place.height <= 1300) break;
  }
  const scale = Math.min(devicePixelRatio, 16000 / place.height);
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(place.height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${place.height}px`;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
}

const corner = (tile) => [
  place.gutter + (tile % place.columns) * place.wide,
  Math.floor(tile / place.columns) * place.high,
];

function draw() {
  const ink = colours(), fills = data.kinds.map((kind) => ink[kind.name] ?? ink["not the heap"]);
  const { size } = place, line = size >= 5 ? 1 : 0, inner = size - line;
  pen.clearRect(0, 0, place.width, place.height);
  data.superslabs.forEach(({ slots }, tile) => {
    const [left, top] = corner(tile);
    for (let i = 0; i < SLOTS; i++) {
      const five = i * FIELDS, kind = data.kinds[slots[five]];
      const x = left + (i % 8) * size, y = top + (i >> 3) * size;
      const faint = chosen.size && !chosen.has(kind.name) ? 0.12 : 1;
      // The slots of a span touch.
      const joined = i % 8 < 7 && i < SLOTS - 1 && slots[five + FIELDS + 4] > 0;
      const wide = joined ? size : inner;
      const share = kind.blocks ? slots[five + 1] / kind.blocks : 1;
      pen.fillStyle = fills[slots[five]];
      // Cells too small to be filled in part are paler instead.
      if (share === 1 || line === 0) {
        pen.globalAlpha = (0.3 + 0.7 * share) * faint;
        pen.fillRect(x, y, wide, inner);
        continue;
      }
      pen.globalAlpha = 0.3 * faint;
      pen.fillRect(x, y, wide, inner);
      pen.globalAlpha = faint;
      pen.fillRect(x, y + inner * (1 - share), wide, inner * share);
    }
  });
  pen.globalAlpha = 1;
  numbers();
  point();
}

// The first SuperSlab of a row, where there is room for its number.
function numbers() {
  pen.fillStyle = styleOf("--soft");
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  pen.textAlign = "right";
  const every = Math.ceil(16 / place.high);
  for (let tile = 0; tile < data.superslabs.length; tile += place.columns * every) {
    const [left, top] = corner(tile);
    pen.fillText(data.superslabs[tile].number, left - 6, top + Math.min(11, place.high));
  }
}

// ---- what is under the cursor ----

function hit(x, y) {
  const column = Math.floor((x - place.gutter) / place.wide), row = Math.floor(y / place.high);
  const tile = row * place.columns + column;
  const [i, j] = [(x - place.gutter) % place.wide, y % place.high].map((part) => Math.floor(part / place.size));
  const isTile = column >= 0 && column < place.columns && row >= 0 && tile < data.superslabs.length;
  const inside = isTile && i >= 0 && i < 8 && j < 4;
  return inside ? tile * SLOTS + j * 8 + i : null;
}

function told(number) {
  const tile = data.superslabs[Math.floor(number / SLOTS)], slot = number % SLOTS;
  const [kind, used, owner, resident, back] = tile.slots.slice(slot * FIELDS, (slot + 1) * FIELDS);
  const { name, state, tier, blocks, block_bytes } = data.kinds[kind];
  const title = { unused: "UNUSED", lazy: "LAZY", empty: "EMPTY" }[state] ??
    (blocks > 1 || tier === "tiny" || tier === "mid" ? `class ${name}` : `${name} block of ${bytes(block_bytes)}`);
  const lines = [`SuperSlab ${tile.number}${tile.huge_page ? ", a huge page" : ""}, slot ${slot}`];
  if (state === "unused") lines.push("free: purged or never used");
  if (state === "lazy") lines.push("free: the system takes it when it needs memory");
  if (state === "empty") lines.push("free, still resident");
  if (state === "active" && blocks) {
    const percent = digits(100 * used / blocks);
    lines.push(`${count(used)} of ${count(blocks)} block${blocks === 1 ? "" : "s"} used (${percent} %)`);
    lines.push(owner === NONE ? "owner: none" : `owner: heap ${owner}`);
  }
  if (back > 0) lines.push(`${back} slot${back === 1 ? "" : "s"} behind the first of its span`);
  lines.push(`${bytes(resident)} resident`, `at ${"0x" + (BigInt(tile.address) + BigInt(slot * 65536)).toString(16)}`);
  return [title, lines];
}

function point() {
  const tip = by("tip"), cursor = by("cursor");
  if (at !== null && at >= data.superslabs.length * SLOTS) at = null;
  tip.hidden = cursor.hidden = at === null;
  if (at === null) return;
  const [left, top] = corner(Math.floor(at / SLOTS)), slot = at % SLOTS, { size } = place;
  const [x, y] = [left + (slot % 8) * size, top + (slot >> 3) * size];
  Object.assign(cursor.style, { left: `${x}px`, top: `${y}px`, width: `${size}px`, height: `${size}px` });
  const [title, lines] = told(at);
  tip.replaceChildren(element("b", {}, title), ...lines.flatMap((line, n) => (n ? [element("br"), line] : [line])));
  const box = canvas.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const room = { x: document.documentElement.clientWidth - own.width - 8, y: innerHeight - own.height - 8 };
  tip.style.left = `${Math.max(8, Math.min(box.left + x + size + 10, room.x))}px`;
  const below = box.top + y + size + 10;
  tip.style.top = `${Math.max(8, below > room.y ? box.top + y - own.height - 10 : below)}px`;
}

function pointAt(event) {
  const box = canvas.getBoundingClientRect();
  const next = hit(event.clientX - box.left, event.clientY - box.top);
  if (next !== at) {
    at = next;
    point();
  }
}

// Arrows go over the map as it is seen.
function step(event) {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const move = moves[event.key];
  if (event.key === "Escape") at = null;
  else if (!move) return;
  else if (at === null) at = data.superslabs.length ? 0 : null;
  else {
    const tile = Math.floor(at / SLOTS), slot = at % SLOTS;
    const x = (tile % place.columns) * 8 + (slot % 8) + move[0];
    const y = Math.floor(tile / place.columns) * 4 + (slot >> 3) + move[1];
    const next = Math.floor(y / 4) * place.columns + Math.floor(x / 8);
    const inside = x >= 0 && x < place.columns * 8 && y >= 0 && next < data.superslabs.length;
    if (inside) at = next * SLOTS + (y % 4) * 8 + (x % 8);
  }
  event.preventDefault();
  point();
}

function show() {
  showTerms();
  showTables();
  showChips();
  layout();
  draw();
}

canvas.addEventListener("pointermove", pointAt);
canvas.addEventListener("pointerdown", pointAt);
canvas.addEventListener("pointerleave", (event) => {
  if (event.pointerType !== "mouse") return;
  at = null;
  point();
});
canvas.addEventListener("keydown", step);
canvas.addEventListener("focus", () => {
  if (at === null && canvas.matches(":focus-visible") && data.superslabs.length) {
    at = 0;
    point();
  }
});
canvas.addEventListener("blur", () => {
  at = null;
  point();
});
dark.addEventListener("change", show);
addEventListener("scroll", point, { passive: true });
new ResizeObserver(() => {
  if (canvas.parentElement.clientWidth === place.width) return;
  layout();
  draw();
}).observe(canvas.parentElement);
show();
