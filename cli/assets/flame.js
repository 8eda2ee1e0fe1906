"use strict";
// Flame graphs: a click zooms, the box searches, the list changes what widths mean. Without this it is a picture.
const flame = document.querySelector(".flame");
const tools = document.querySelector(".tools");
const status = document.querySelector(".status");
const open = [];
const frames = [...flame.children].map((element, number) => {
  const values = element.dataset.values.split(" ").map(Number);
  const frame = { element, number, depth: Number(element.dataset.depth), values };
  open.length = frame.depth;
  frame.parent = open[frame.depth - 1] ?? null;
  open.push(frame);
  return frame;
});
let metric = Number(flame.dataset.metric);
let zoomed = frames[0];

const isWithin = (frame, other) => {
  while (frame && frame.depth > other.depth) frame = frame.parent;
  return frame === other;
};

function draw() {
  const whole = frames[0].values[metric] || 1;
  for (const frame of frames) {
    frame.width = frame.values[metric] / whole;
    frame.left = frame.parent ? frame.parent.next : 0;
    frame.next = frame.left;
    if (frame.parent) frame.parent.next += frame.width;
  }
  let depth = 0;
  for (const frame of frames) {
    const above = frame !== zoomed && isWithin(zoomed, frame);
    const left = above ? 0 : (frame.left - zoomed.left) / (zoomed.width || 1);
    const width = above ? 1 : frame.width / (zoomed.width || 1);
    const seen = (above || isWithin(frame, zoomed)) && width > 0.0004;
    frame.element.hidden = !seen;
    if (!seen) continue;
    depth = Math.max(depth, frame.depth);
    frame.element.style.left = `${left * 100}%`;
    frame.element.style.width = `${width * 100}%`;
    frame.element.classList.toggle("thin", width < 0.01);
    frame.element.classList.toggle("above", above);
  }
  flame.style.height = `${(depth + 1) * 18}px`;
  tools.querySelector("button").hidden = zoomed === frames[0];
}

function text(value) {
  if (flame.dataset.units.split(" ")[metric] !== "bytes") return `${value.toLocaleString("en")} blocks`;
  const power = Math.min(3, Math.floor(Math.log2(Math.max(value, 1)) / 10));
  return `${Number((value / 1024 ** power).toPrecision(3))} ${["B", "KiB", "MiB", "GiB"][power]}`;
}

function tell(frame) {
  const share = ((100 * frame.values[metric]) / (frames[0].values[metric] || 1)).toFixed(1);
  status.textContent = `${frame.element.title} — ${text(frame.values[metric])}, ${share} %`;
}

function search() {
  const wanted = tools.querySelector("input").value.trim().toLowerCase();
  let found = 0;
  for (const frame of frames) {
    frame.found = wanted !== "" && frame.number > 0 && frame.element.title.toLowerCase().includes(wanted);
    frame.element.classList.toggle("found", frame.found);
    let outer = frame.parent;
    while (outer && !outer.found) outer = outer.parent;
    if (frame.found && !outer) found += frame.values[metric];
  }
  if (wanted) status.textContent = `${text(found)} in functions whose name has “${wanted}”`;
}

const frameOf = (event) => frames.find((frame) => frame.element === event.target.closest(".flame > *"));
function zoom(frame) {
  if (!frame) return;
  zoomed = frame;
  draw();
  tell(frame);
}
flame.addEventListener("mouseover", (event) => {
  const frame = frameOf(event);
  if (frame) tell(frame);
});
flame.addEventListener("click", (event) => zoom(frameOf(event)));
flame.addEventListener("focusin", (event) => tell(frameOf(event)));
flame.addEventListener("keydown", (event) => {
  if (event.key === "Enter") zoom(frameOf(event));
  if (event.key === "Escape") zoom(frames[0]);
});
tools.querySelector("button").addEventListener("click", () => zoom(frames[0]));
tools.querySelector("input").addEventListener("input", search);
tools.querySelector("select")?.addEventListener("change", (event) => {
  metric = Number(event.target.value);
  draw();
  search();
});
tools.hidden = false;
draw();
