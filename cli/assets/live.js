"use strict";
// The page of `hakmem view`: fetches the next picture every second, keeps what was, asks for a purge.
const HISTORY = 300, headers = { "X-Hakmem-Token": document.querySelector("meta[name=token]").content };
const past = []; // {at: seconds, parts, rates}
let paused = false, over = false;

function say(text, state) {
  by("status").textContent = text;
  by("status").className = state ?? "";
}

// Nothing more will come: the page keeps its last picture.
function end(text) {
  over = true;
  say(text, "off");
  by("pause").disabled = by("purge").disabled = true;
}

async function refresh() {
  if (over) return;
  try {
    const answer = await fetch("snapshot.json", { cache: "no-store" });
    if (answer.status === 410) return end(await answer.text());
    if (!answer.ok) throw new Error(await answer.text());
    const next = await answer.json();
    if (!paused) {
      data = next;
      remember();
      show();
      say(`Live: ${past.length} picture${past.length === 1 ? "" : "s"} so far`);
    }
  } catch (error) {
    if (error instanceof TypeError) return end("hakmem view has ended; this is the last picture.");
    say(error.message, "off");
  }
  setTimeout(refresh, 1000);
}

function remember() {
  past.push({ at: data.process.age_ms / 1000, parts: data.parts, rates: data.rates });
  if (past.length > HISTORY) past.shift();
  wave();
  rates();
}

const drawing = (name, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};

// The terms over time, one on the other, the first at the bottom.
function wave() {
  const first = past[0].at, time = Math.max(past.at(-1).at - first, 1);
  const sums = past.map((one) => one.parts.reduce((sum, part) => sum + part.bytes, 0));
  const most = Math.max(...sums, 1), floor = past.map(() => 0);
  const x = (one) => ((one.at - first) / time * 1000).toFixed(1), y = (value) => (200 * (1 - value / most)).toFixed(1);
  const layers = past.at(-1).parts.map((part, number) => {
    const below = past.map((one, n) => `${x(one)} ${y(floor[n])}`).reverse();
    past.forEach((one, n) => (floor[n] += one.parts[number].bytes));
    const above = past.map((one, n) => `${x(one)} ${y(floor[n])}`);
    const layer = drawing("path", { d: `M${above.join("L")}L${below.join("L")}Z` });
    layer.style.setProperty("--light", data.looks[part.name].light);
    layer.style.setProperty("--dark", data.looks[part.name].dark);
    return layer;
  });
  by("wave").replaceChildren(...layers);
  by("most").textContent = `highest ${bytes(most)}`;
  by("since").textContent = `the last ${span(past.at(-1).at - first)}`;
}

function rates() {
  const speeds = (number) => past.slice(1).map((one, n) =>
    Math.max(0, one.rates[number].count - past[n].rates[number].count) / Math.max(one.at - past[n].at, 0.001));
  by("rates").replaceChildren(...data.rates.map((rate, number) => {
    const all = speeds(number), most = Math.max(...all, 1);
    const points = all.map((speed, n) => `${n / Math.max(all.length - 1, 1) * 100} ${25 - 23 * speed / most}`);
    const line = drawing("svg", { viewBox: "0 0 100 26", preserveAspectRatio: "none", "aria-hidden": "true" });
    line.append(drawing("path", { class: "spark", d: points.length > 1 ? `M${points.join("L")}` : "" }));
    const value = element("output", { "data-path": `rates[${number}].count`, "data-value": rate.count },
      all.length ? `${count(Math.round(all.at(-1)))} /s` : "–");
    return element("figure", { title: rate.help }, element("figcaption", {}, rate.name), value, line);
  }));
}

by("pause").addEventListener("click", () => {
  paused = !paused;
  by("pause").textContent = paused ? "Go on" : "Pause";
  say(paused ? "Paused" : "Live", paused ? "paused" : "");
});
by("purge").addEventListener("click", async () => {
  const answer = await fetch("purge", { method: "POST", headers });
  by("said").textContent = await answer.text();
});
remember();
setTimeout(refresh, 1000);
