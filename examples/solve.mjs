import { appendFileSync, readFileSync, writeFileSync } from "node:fs";

const env = process.env;
const task = JSON.parse(readFileSync(env.EVALFLEET_TASK, "utf8"));

task.payload.words.forEach((word, index) => {
  appendFileSync(env.EVALFLEET_EVENTS, JSON.stringify({ step: index + 1, note: word }) + "\n");
});
writeFileSync(`${env.EVALFLEET_ARTIFACTS}/words.txt`, task.payload.words.join("\n"));
writeFileSync(env.EVALFLEET_RESULT, JSON.stringify({ success: true, steps: task.payload.words.length }));
