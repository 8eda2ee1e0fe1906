// Requests as a server has them: objects, buffers, compression and hashes on the thread pool, two worker threads.
// SPDX-License-Identifier: MIT
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { promisify } = require('util');
const { pbkdf2 } = require('crypto');
const zlib = require('zlib');
const deflate = promisify(zlib.deflate), inflate = promisify(zlib.inflate), derive = promisify(pbkdf2);

async function serve(seed, requests) {
    const sessions = new Map();
    let sum = 0;
    for (let i = 0; i < requests; i++) {
        seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
        const body = Buffer.alloc(200 + (seed >>> 8) % 6000, i & 255);
        const [packed, key] = await Promise.all([deflate(body), derive('secret', String(i), 1, 32, 'sha256')]);
        sessions.set((seed >>> 12) % 500, { packed, key, text: JSON.stringify({ i, name: 'n'.repeat(i % 50) }) });
        const old = sessions.get((seed >>> 16) % 500);
        sum += old ? (await inflate(old.packed)).length + new TextDecoder().decode(old.key).length : 0;
    }
    return sum;
}

if (isMainThread) {
    const workers = [2, 3].map((seed) => new Worker(__filename, { workerData: seed }));
    const answers = workers.map((worker) => new Promise((resolve) => worker.on('message', resolve)));
    Promise.all([serve(1, 1500), ...answers]).then((sums) => console.log(sums.join(' ')));
} else {
    serve(workerData, 800).then((sum) => parentPort.postMessage(sum));
}
