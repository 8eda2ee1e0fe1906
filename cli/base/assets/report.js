"use strict";
// The page is whole without this. It sorts tables by their headings, and opens everything for the printer.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    if (heading.classList.contains("plot")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(table.tBodies[0], column, down ? -1 : 1);
    });
  });
}

function sort(body, column, direction) {
  const key = (row) => {
    const cell = row.cells[column];
    if (!cell || cell.textContent.trim() === "") return null;
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  const order = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    const both = typeof x === "number" && typeof y === "number";
    return direction * (both ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));
  };
  body.append(...[...body.rows].sort(order));
}

const all = () => [...document.querySelectorAll("details")];
let opened = [];
addEventListener("beforeprint", () => {
  opened = all().filter((one) => !one.open);
  opened.forEach((one) => (one.open = true));
});
addEventListener("afterprint", () => opened.forEach((one) => (one.open = false)));
