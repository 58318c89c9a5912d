/* The shell: which model and view are shown, the language, the theme, and what is said when something fails.

A view is a module of views/, named by its id, that exports

    what         {paper, files}: the paper and the section as text, and our files where it is computed. Its name, one
                 line on it and a few on what is seen are "ID.title", "ID.lead" and "ID.what" of text.*.json.
    open(stage)  builds the view once and returns {changed({state, ask}), close()}; `close` may be missing.
                 `changed` brings the view up to what the address says: at first, after each `put`, on Back, when
                 the server is there again and when the theme changes. It may be async. A newer call ends the older
                 one: its `ask` then throws, which the shell overlooks. Every other error is shown above the view.
                 An element that is made anew keeps the focus if it has the same `data-focus`.

    stage.root             where the view's elements go
    stage.model            the chosen model, as GET /explore/models tells it
    stage.put(values, {replace})   put values into the address (undefined takes one out); `replace` leaves no step in
                                   the browser's history, for what changes all the time
    ask(path, body)        the answer to POST /explore/… ; `ask(path)` is a GET
    state                  the values of the address, as strings: text, pair, layer, …

Numbers come by `decoded` (numbers.js), words by `t` (words.js), pictures go into a `picture` (picture.js), which has
the buttons that save it. */

import { ask as question, check, exported, server, whenLocked } from "heedful/api.js";
import { go, link, read } from "heedful/address.js";
import { chooser, h, s, segments } from "heedful/elements.js";
import { askForKey, showKeys } from "heedful/dialogs.js";
import { chosenTheme, theme, THEMES, wear } from "heedful/theme.js";
import { explanation } from "heedful/what.js";
import { language, LANGUAGES, speak, t } from "heedful/words.js";

const VIEWS = ["blanks", "attention", "head", "positions", "translation", "meaning", "images", "training"];
const FIRST = ["attention", "translation", "images", "blanks"];
const CARRIED = ["text", "pair", "part", "layer", "head", "token"];

const page = document.getElementById("page");
let models = [];
let training = false;
let shown = null;
let unfetched = false;

/** The view and the model that the address asks for, or those that stand for it. */
function wanted() {
  const start = exported?.start ?? {};
  const { view: asked, values } = read();
  const state = { ...start, view: undefined, ...values };
  const open = models.find((one) => one.views.length > 0) ?? models[0] ?? null;
  const model = models.find((one) => one.name === state.model) ?? open;
  const views = viewsOf(model);
  const view = [asked, asked ? null : start.view, ...FIRST, ...views].find((one) => views.includes(one)) ?? null;
  return { view, model, state: { ...state, model: model?.name } };
}

function viewsOf(model) {
  return VIEWS.filter((view) => (view === "training" ? training : model?.views.includes(view)));
}

/** Show what the address asks for. */
async function follow() {
  const { view, model, state } = wanted();
  if (!view) {
    leave();
    markNavigation(view, model, state);
    return refuse(model?.why ?? t("shell.nothing"));
  }
  if (shown?.view !== view || shown.model !== model) await openView(view, model);
  page.querySelector(".instead")?.replaceChildren(instead());
  document.title = `${t(`${view}.title`)} · ${model?.name ?? ""} · heedful`;
  markNavigation(view, model, state);
  await bringUp(wanted().state); // the address may have changed while the view was fetched
}

/** What to say where a link names something that there is not. */
function instead() {
  const { view, values } = read();
  const said = [];
  if (view && !VIEWS.includes(view)) said.push(t("shell.no_view", { name: view }));
  if (values.model && !models.some((one) => one.name === values.model)) {
    said.push(t("shell.no_model", { name: values.model }));
  }
  return said.join(" ");
}

async function openView(view, model) {
  leave();
  const root = h("div", { class: "view", data: { view } });
  const opening = { view, model, root, controller: null, stage: {} };
  shown = opening;
  const module = await import(`heedful/views/${view}.js`).catch(() => null);
  if (shown !== opening) return;
  if (!module) {
    unfetched = true; // a browser does not fetch a module twice, so that only loading the page again helps
    refuse(t("shell.unfetched"));
    check();
    return;
  }
  page.querySelector("main").replaceChildren(
    h("header", { class: "view-head" }, h("h1", {}, t(`${view}.title`)), linkButton(),
      h("p", { class: "lead" }, t(`${view}.lead`))),
    explanation(view, module.what),
    h("p", { class: "instead", role: "status" }),
    h("div", { class: "trouble", role: "alert" }),
    root,
  );
  opening.stage = module.open({
    root,
    model,
    put: (values, options) => put(values, options),
  });
}

function leave() {
  shown?.controller?.abort();
  shown?.stage.close?.();
  shown = null;
}

/** Let the view follow the address, and say what went wrong. */
async function bringUp(state) {
  const mine = shown;
  mine.controller?.abort();
  const controller = new AbortController();
  mine.controller = controller;
  const ask = async (path, body) => {
    const answer = await question(body === undefined ? "GET" : "POST", path, body, controller.signal);
    controller.signal.throwIfAborted();
    return answer;
  };
  const trouble = page.querySelector(".trouble") ?? h("div", {});
  mine.root.setAttribute("aria-busy", "true");
  try {
    const focused = document.activeElement?.dataset.focus;
    await mine.stage.changed?.({ state, ask });
    mine.root.classList.remove("stale");
    if (focused && !document.activeElement?.dataset.focus) {
      mine.root.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
    }
    trouble.replaceChildren();
  } catch (error) {
    if (controller.signal.aborted || shown !== mine) return;
    trouble.replaceChildren(...(error.kind === "gone" ? [] : [h("p", {}, said(error))]));
    mine.root.classList.add("stale"); // what is there belongs to what was asked before
    if (error.kind === undefined && error.status === undefined) throw error;
  } finally {
    if (mine.controller === controller) {
      mine.root.removeAttribute("aria-busy");
      mine.root.dataset.shows = location.hash;
    }
  }
}

function said(error) {
  if (error.kind === "exported") return t("shell.exported");
  if (error.status === 401) return t("shell.locked");
  return error.message || t("shell.broken");
}

function put(values, { replace = false } = {}) {
  const { view, state } = wanted();
  go(view, { ...state, ...values }, replace);
  follow();
}

function refuse(words) {
  page.querySelector("main").replaceChildren(h("p", { class: "empty" }, words));
}

/** Head, navigation and place for the view, in the language of now. */
function build() {
  leave();
  page.replaceChildren(
    h("a", { class: "skip", href: "#main", onclick: skip }, t("shell.skip")),
    h("header", { class: "bar" },
      h("a", { class: "brand", href: "#" }, mark(), "heedful"),
      modelChooser(),
      h("div", { class: "settings" }, languages(), themes(),
        h("button", { type: "button", class: "icon", title: t("shell.keys"), aria: { label: t("shell.keys") },
                      onclick: () => showKeys() }, "?"))),
    h("p", { class: "banner", role: "status", aria: { live: "assertive" } }),
    h("nav", { class: "views", aria: { label: t("shell.views") } }),
    h("main", { id: "main", tabindex: "-1" }),
  );
}

function mark() {
  return s("svg", { class: "mark", viewBox: "0 0 32 32", aria: { hidden: "true" } },
    s("rect", { width: 32, height: 32, rx: 8 }), s("path", { d: "M9 8v16M9 16C16 16 16 8 23 8M9 16c7 0 7 8 14 8" }));
}

/** A button that puts the view's link on the clipboard, or shows it where there is none. */
function linkButton() {
  const attributes = { type: "button", class: "quiet", aria: { live: "polite" }, onclick: copy };
  const button = h("button", attributes, t("shell.copy"));
  async function copy() {
    const { view, state } = wanted();
    const url = new URL(link(view, state), location.href).href;
    try {
      await navigator.clipboard.writeText(url);
      button.textContent = t("shell.copied");
      setTimeout(() => (button.textContent = t("shell.copy")), 1500);
    } catch {
      window.prompt(t("shell.copy"), url);
    }
  }
  return button;
}

function modelChooser() {
  const { model } = wanted();
  if (models.length < 2) return h("p", { class: "model" }, model?.name ?? "");
  const pick = (name) => {
    const { view, state } = wanted();
    go(view ?? "", { model: name, text: state.text, pair: state.pair });
    follow();
  };
  const field = chooser(t("shell.model"), models.map((one) => [one.name, one.name]), model?.name, pick);
  field.classList.add("model");
  return field;
}

function languages() {
  return segments(t("shell.language"), LANGUAGES, language(), async (code) => {
    await speak(code, true);
    build();
    await follow();
  });
}

function themes() {
  const options = THEMES.map((name) => [name, t(`theme.${name}`)]);
  return segments(t("shell.theme"), options, chosenTheme(), (name) => wear(name));
}

function markNavigation(view, model, state) {
  const carried = Object.fromEntries(["model", ...CARRIED].map((key) => [key, state[key]]));
  page.querySelector("nav.views").replaceChildren(
    ...viewsOf(model).map((one) =>
      h("a", { href: link(one, one === view ? state : carried), aria: { current: one === view ? "page" : null } },
        t(`${one}.title`))));
  const current = page.querySelector("nav.views [aria-current]");
  if (current) current.parentElement.scrollLeft = current.offsetLeft - current.parentElement.offsetLeft - 16;
  const select = page.querySelector(".model select");
  if (select) select.value = model.name;
}

function skip(event) {
  event.preventDefault();
  page.querySelector("main").focus();
}

/** Keys that work everywhere but where one types: numbers choose a view, / goes to the text, ? says so. */
function onKey(event) {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const link = page.querySelectorAll("nav.views a")[Number(event.key) - 1];
  if (link) link.click();
  else if (event.key === "/") page.querySelector("main textarea, main input[type=text]")?.focus();
  else if (event.key === "?") showKeys();
  else return;
  event.preventDefault();
}

async function start() {
  await speak(language());
  build();
  whenLocked(askForKey);
  server.addEventListener("gone", () => banner(t("shell.gone")));
  server.addEventListener("back", recover);
  theme.addEventListener("change", () => {
    page.querySelectorAll(".settings [data-value]").forEach((button) => {
      if (THEMES.includes(button.dataset.value)) {
        button.setAttribute("aria-pressed", String(button.dataset.value === chosenTheme()));
      }
    });
    if (shown) bringUp(wanted().state);
  });
  window.addEventListener("popstate", () => follow());
  document.addEventListener("keydown", onKey);
  await load();
}

/** Ask what there is to see, and show it; where that is what there was, only the view follows. */
async function load() {
  try {
    const told = await question("GET", "/explore/models");
    const trains = (await question("GET", "/explore/runs").catch(() => [])).length > 0;
    if (!shown || trains !== training || JSON.stringify(told) !== JSON.stringify(models)) {
      [models, training] = [told, trains];
      build();
    }
    await follow();
  } catch (error) {
    if (error.kind === undefined) throw error;
    if (error.kind !== "gone") refuse(said(error));
  }
}

async function recover() {
  banner("");
  if (unfetched) location.reload();
  else await load(); // it may be another server, with other models
}

function banner(words) {
  page.querySelector(".banner").textContent = words;
}

start();
