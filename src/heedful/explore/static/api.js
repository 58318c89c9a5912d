/* Questions to the server, and what to do when it does not answer.

An exported page carries its answers with it and asks nobody. Elsewhere a lost server is told to the page ("gone"),
asked for its health until it is there again ("back"), and where it wants a key, the page is asked for one.
Knows nothing of views. */

import { kept, keep } from "heedful/memory.js";

const PATIENCE = 90_000;
const BEAT = 10_000;
const BEAT_WHILE_GONE = 1_500;
const ANSWERS_KEPT = 32;
const TRIES = 4;

/** Tells "gone" and "back". */
export const server = new EventTarget();

/** What an exported page carries: a map from "METHOD path body" to answers. Null on a served page. */
export const exported = JSON.parse(document.getElementById("exported")?.textContent ?? "null");

/** An answer that is an error: the words, the kind and the HTTP status (0 where there was no answer). */
export class Refused extends Error {
  constructor(words, kind, status) {
    super(words);
    this.kind = kind;
    this.status = status;
  }
}

const answers = new Map();
let gone = false;
let beat = null;
let askForKey = async () => null;
let asking = null;

/** The answer to a question: `ask("GET", path)`, or `ask("POST", path, body)` without what is undefined in it. */
export async function ask(method, path, body, signal) {
  const question = named(method, path, body);
  if (exported) {
    if (question in exported) return exported[question];
    throw new Refused("", "exported", 0);
  }
  if (method === "GET") return request(method, path, undefined, signal);
  if (answers.has(question)) return answers.get(question);
  const answer = await request(method, path, canonical(body), signal);
  answers.set(question, answer);
  if (answers.size > ANSWERS_KEPT) answers.delete(answers.keys().next().value);
  return answer;
}

/** Whether there is an answer to POST `path`: a server has one to anything, an exported page to what it carries. */
export function answered(path, body) {
  return !exported || named("POST", path, body) in exported;
}

function named(method, path, body) {
  return [method, path, body === undefined ? undefined : canonical(body)].filter((part) => part).join(" ");
}

/** JSON with sorted keys and no spaces, as an export writes its questions. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const keys = Object.keys(value).filter((key) => value[key] !== undefined).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
}

/** Say how a key is asked for: a function from "the last one was wrong" to a key, or null to give up. */
export function whenLocked(opens) {
  askForKey = opens;
}

async function request(method, path, body, signal) {
  for (let tried = 1; ; tried++) {
    const key = kept("key", "sessionStorage");
    const response = await send(method, path, body, key, signal);
    if (response.ok) return response.json();
    if (response.status === 401 && (await unlock(key))) continue;
    const wait = Number(response.headers.get("Retry-After"));
    if (response.status === 429 && wait > 0 && wait <= 10 && tried < TRIES) {
      await rest(wait * 1000, signal);
      continue;
    }
    if (response.status === 503 && !(await check())) throw new Refused("", "gone", 503); // it loads, or is about to stop
    const said = await response.json().catch(() => ({}));
    throw new Refused(said.error ?? `${response.status} ${response.statusText}`, said.error_type, response.status);
  }
}

async function send(method, path, body, key, signal) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (key) headers.Authorization = `Bearer ${key}`;
  const limits = [AbortSignal.timeout(PATIENCE), ...(signal ? [signal] : [])];
  try {
    return await fetch(path.slice(1), { method, headers, body, signal: AbortSignal.any(limits) });
  } catch (error) {
    if (signal?.aborted) throw error;
    lose();
    throw new Refused("", "gone", 0);
  }
}

async function unlock(refused) {
  if (kept("key", "sessionStorage") !== refused) return true; // another question has been given a key meanwhile
  asking ??= askForKey(refused !== null)
    .then((key) => {
      if (key) keep("key", key, "sessionStorage");
      return Boolean(key);
    })
    .finally(() => {
      asking = null;
    });
  return asking;
}

function rest(time, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, time);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

function checkSoon() {
  clearTimeout(beat);
  beat = setTimeout(check, BEAT_WHILE_GONE);
}

function lose() {
  if (gone) return;
  gone = true;
  server.dispatchEvent(new Event("gone"));
  checkSoon();
}

/** See whether the server is well, and tell if that has changed. */
export async function check() {
  if (exported) return true;
  let well = false;
  try {
    well = (await fetch("health", { signal: AbortSignal.timeout(BEAT), cache: "no-store" })).ok;
  } catch {
    // Still away.
  }
  if (!well && gone) checkSoon();
  else if (!well) lose();
  else if (gone) {
    gone = false;
    answers.clear(); // it may have come back with other models
    server.dispatchEvent(new Event("back"));
  }
  return well;
}

if (!exported) {
  setInterval(() => {
    if (!gone && document.visibilityState === "visible") check();
  }, BEAT);
  document.addEventListener("visibilitychange", () => {
    if (!gone && document.visibilityState === "visible") check();
  });
}
