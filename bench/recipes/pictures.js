// Pictures: a server that makes thumbnails, a few at a time, and then waits. libvips allocates in threads of its own.
// SPDX-License-Identifier: MIT
const sharp = require(process.argv[2]);

const PICTURES = 12, AT_ONCE = 4, REST_MS = 700;

sharp.cache(false);
sharp.concurrency(2);

async function thumbnails(picture) {
  const noise = { type: "gaussian", mean: 128, sigma: 20 + picture };
  const create = { width: 1200 + 100 * (picture % 7), height: 900, channels: 3, background: "#456", noise };
  const whole = await sharp({ create }).jpeg({ quality: 85 }).toBuffer();
  const sizes = [640, 320, 96].map((width) => sharp(whole).resize(width).jpeg().toBuffer({ resolveWithObject: true }));
  return (await Promise.all(sizes)).map(({ info }) => info.width * info.height);
}

async function main() {
  let pixels = 0;
  for (let first = 0; first < PICTURES; first += AT_ONCE) {
    const batch = Array.from({ length: AT_ONCE }, (_, place) => thumbnails(first + place));
    pixels += (await Promise.all(batch)).flat().reduce((sum, size) => sum + size, 0);
  }
  await new Promise((resolve) => setTimeout(resolve, REST_MS));
  console.log(`${PICTURES} pictures, ${pixels} pixels`);
}

main();
