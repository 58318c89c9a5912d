/* Elements of the page, made in one call; and what several views put on it. Knows nothing of models. */

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: `on…` functions are listeners, `data`, `style` and `aria` objects, the rest attributes. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "aria") for (const [key, said] of Object.entries(value)) aria(element, key, said);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => ![null, undefined, false].includes(child)));
  return element;
}

function aria(element, key, said) {
  if (said !== undefined && said !== null) element.setAttribute(`aria-${key}`, said);
}

/** A choice of one among few, as a row of buttons: `options` are [value, words]. */
export function segments(label, options, chosen, pick) {
  const button = ([value, words]) => h("button", {
    type: "button",
    data: { value, focus: `${label}:${value}` },
    aria: { pressed: String(value === chosen) },
    onclick: () => pick(value),
  }, words);
  return h("div", { class: "segments", role: "group", aria: { label } }, options.map(button));
}

/** A choice of one among many, with its label. */
export function chooser(label, options, chosen, pick) {
  const select = h("select", { data: { focus: label }, onchange: () => pick(select.value) },
    options.map(([value, words]) => h("option", { value, selected: String(value) === String(chosen) }, words)));
  return h("label", { class: "field" }, h("span", {}, label), select);
}

/** Yes or no, with its label. */
export function toggle(label, on, pick) {
  const box = h("input", { type: "checkbox", checked: on, data: { focus: label } });
  box.addEventListener("change", () => pick(box.checked));
  return h("label", { class: "toggle" }, box, h("span", {}, label));
}

/** Let arrow keys walk through the items that a selector finds, of which Tab reaches one. */
export function walkable(container, selector, columns = () => 1) {
  const items = () => [...container.querySelectorAll(selector)];
  const settle = (chosen) => items().forEach((item) => item.setAttribute("tabindex", item === chosen ? "0" : "-1"));
  container.addEventListener("focusin", (event) => {
    const item = event.target.closest(selector);
    if (item) settle(item);
  });
  container.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.indexOf(event.target.closest(selector));
    const across = columns();
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    let next = { Home: 0, End: all.length - 1 }[event.key] ?? at + step;
    while (step && all[next]?.disabled) next += step;
    if (at < 0 || !(next in all)) return;
    event.preventDefault();
    all[next].focus();
  });
  return () => {
    const all = items();
    settle(all.find((item) => item.matches("[aria-pressed=true], [aria-current=true]")) ?? all[0]);
  };
}
