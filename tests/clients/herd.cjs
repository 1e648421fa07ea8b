// Clients of node-retry with its own waits: `herd.cjs CLIENTS PORT...`.
//
// Each client asks the server at one of the ports again and again, and retries what is answered
// with 503. The server decides how long an answer takes.
"use strict";

const http = require("http");
const retry = require("retry");

const [clients, ...ports] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true });

function ask(port, done) {
  const request = http.get({ agent, host: "127.0.0.1", port, path: "/call/node-retry" }, (answer) => {
    answer.resume();
    answer.on("end", () => done(answer.statusCode === 503 ? new Error("unavailable") : null));
  });
  request.on("error", done);
}

function client(port) {
  const operation = retry.operation();
  operation.attempt(() => {
    ask(port, (error) => {
      if (!operation.retry(error)) client(port);
    });
  });
}

for (let number = 0; number < Number(clients); number++) client(ports[number % ports.length]);
