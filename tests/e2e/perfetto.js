// Runs Perfetto's trace processor (WebAssembly made for a browser's worker) without a browser: emulates its fetch and
// its message port. perfetto.js FOLDER REQUESTS REPLIES: both files contain its remote calls, unchanged.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [, , folder, requests, replies] = process.argv;
const engine = path.join(folder, "engine_bundle.js");
const out = fs.openSync(replies, "w");

Object.assign(globalThis, {
  self: globalThis,
  WorkerGlobalScope: function () {},
  location: { href: "http://localhost/engine_bundle.js" },
  XMLHttpRequest: class {
    open(method, url) {
      this.file = path.join(folder, path.basename(url));
    }
    send() {
      const bytes = fs.readFileSync(this.file);
      this.status = 200;
      this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    }
  },
});
process.type = "renderer"; // its loader checks this to distinguish a browser's process from node
console.warn = () => {};
vm.runInThisContext(fs.readFileSync(engine, "utf8"), { filename: engine });

const port = { postMessage: reply => fs.writeSync(out, reply) };
globalThis.onmessage({ data: port });

(async () => {
  await new Promise(setImmediate); // it has started
  const bytes = fs.readFileSync(requests);
  for (let at = 0; at < bytes.length; at += 1 << 20) {
    await port.onmessage({ data: new Uint8Array(bytes.subarray(at, at + (1 << 20))) });
  }
  process.exit(0);
})().catch(error => {
  console.error(String(error.message).slice(0, 500));
  process.exit(1);
});
