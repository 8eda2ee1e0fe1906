// Objects, buffers, compression on the thread pool, worker threads and a child; prints digests of the results.
// SPDX-License-Identifier: MIT
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { createHash } = require('crypto');
const { promisify } = require('util');
const { execFileSync } = require('child_process');
const zlib = require('zlib');

const digest = (data) => createHash('sha256').update(data).digest('hex');

function randomSource(state) {
    return (limit) => {
        state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
        return (state >>> 8) % limit;
    };
}

function churn(seed) {
    const random = randomSource(seed);
    const slots = new Map();
    for (let i = 0; i < 200000; i++) {
        const slot = random(5000);
        if (slots.has(slot)) {
            slots.delete(slot);
        } else {
            slots.set(slot, { i, text: 'v'.repeat(random(50)), buffer: Buffer.alloc(random(4096), i & 255) });
        }
    }
    const inOrder = [...slots].sort((a, b) => a[0] - b[0]);
    const rows = inOrder.map(([slot, { i, text, buffer }]) => [slot, i, text, buffer.length]);
    const buffers = Buffer.concat([...slots.values()].map((v) => v.buffer));
    return `${rows.length} ${digest(JSON.stringify(rows))} ${digest(buffers)}`;
}

async function main() {
    console.log(churn(1));
    const random = randomSource(7);
    const data = Buffer.from(Array.from({ length: 1 << 20 }, () => random(64)));
    const packed = await Promise.all([1, 3, 5, 7, 9].map((level) => promisify(zlib.gzip)(data, { level })));
    for (const one of packed) {
        console.log(digest(await promisify(zlib.gunzip)(one)));
    }
    const workers = [2, 3, 4].map((seed) => new Promise((resolve, reject) => {
        const worker = new Worker(__filename, { workerData: seed });
        worker.on('message', resolve);
        worker.on('error', reject);
    }));
    (await Promise.all(workers)).forEach((line) => console.log(line));
    const grown = [];
    for (let i = 0; i < 300; i++) {
        grown.push(new Uint8Array(i * 5000).fill(i));
    }
    console.log(structuredClone(grown).reduce((sum, array) => sum + array.reduce((a, b) => a + b, 0), 0));
    console.log(execFileSync(process.execPath, ['-e', 'console.log("child", [..."x".repeat(1e5)].length)']).toString());
}

if (isMainThread) {
    main();
} else {
    parentPort.postMessage(churn(workerData));
}
