// A service in miniature: requests that build and keep little, a cache that is dropped, and rest.
// SPDX-License-Identifier: MIT
let bytes = 0;

function request(number) {
  const row = (_, row) => ({ row, name: `user ${row}`, text: "x".repeat((number * row) % 600) });
  return Buffer.from(JSON.stringify(Array.from({ length: 20 + (number % 300) }, row)));
}

function hour(requests) {
  const cache = new Map();
  for (let number = 0; number < requests; number++) {
    cache.set(number % 200, request(number));
    bytes += cache.get(number % 200).length;
  }
}

for (const requests of [200, 1200, 100]) hour(requests);
setTimeout(() => console.log(`${bytes} bytes`), 500);
