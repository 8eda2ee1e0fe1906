// Buffers, compression, hashes, JSON and URLs, like a server in node; prints digests of the results.
// SPDX-License-Identifier: MIT
'use strict';
const { createHash } = require('crypto');
const zlib = require('zlib');

const digest = (data) => createHash('sha256').update(data).digest('hex');

let state = 1;
function random(limit) {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return (state >>> 8) % limit;
}

const live = new Map();
const sums = createHash('sha256');
for (let request = 0; request < 24000; request++) {
    const body = Buffer.allocUnsafeSlow(200 + random(6000)).fill(97 + (request % 26));
    const url = new URL(`http://example.org/${random(1000)}/a?size=${body.length}&id=${request}`);
    live.set(random(2000), { body, path: url.pathname, query: Object.fromEntries(url.searchParams) });
    if (request % 6 === 0) {
        const text = JSON.stringify([...live.values()].slice(0, 50).map(({ path, query }) => ({ path, query })));
        const packed = zlib.gzipSync(Buffer.concat([Buffer.from(text), body]));
        sums.update(zlib.gunzipSync(packed));
    }
    if (request % 400 === 0) {
        live.clear();
    }
}
console.log(sums.digest('hex'));

const grown = [];
for (let i = 0; i < 400; i++) {
    grown.push(new Uint8Array(i * 1500).fill(i));
}
console.log(digest(Buffer.concat(structuredClone(grown))));
