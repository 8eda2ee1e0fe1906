// A build tool that watches: a library of hundreds of modules is bundled and minified, again after an edit; then it
// waits for the next one. node's own heap is not malloc's; what V8 parses and compiles with is, and buffers are.
// SPDX-License-Identifier: MIT
const path = require("node:path");

const [modules] = process.argv.slice(2);
const { rollup } = require(path.join(modules, "rollup"));
const { minify } = require(path.join(modules, "terser"));

const EDITS = 2, REST_MS = 700;

async function build(edit) {
  const entry = {
    name: "entry",
    resolveId: (id) => (id === "entry" ? id : null),
    load: (id) => (id === "entry" ? `export * from ${JSON.stringify(path.join(modules, "lodash-es", "lodash.js"))};
export const edit = ${edit};` : null),
  };
  const bundle = await rollup({ input: "entry", plugins: [entry], cache: false, onwarn: () => {} });
  const { output } = await bundle.generate({ format: "es", sourcemap: true });
  await bundle.close();
  const { code } = await minify(output[0].code, { module: true, compress: { passes: 1 } });
  return output[0].code.length + code.length;
}

async function main() {
  let bytes = 0;
  for (let edit = 0; edit < EDITS; edit++) {
    bytes += await build(edit);
  }
  await new Promise((resolve) => setTimeout(resolve, REST_MS));
  console.log(`${EDITS} builds, ${bytes} bytes`);
}

main();
